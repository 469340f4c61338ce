"""What the tests share: builders of projects and scripted agents."""
