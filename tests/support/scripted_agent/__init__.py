"""The agent of the tests: a program of its own that imports nothing of doflow. `Project` installs it."""
