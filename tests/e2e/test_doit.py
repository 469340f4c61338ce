def test_smoke(project):
    done = project.doit("tiny", "--goal=Log in by a link")
    print(done.stdout, done.stderr, project.state(), project.subjects())
    assert (done.returncode, project.calls()) == (0, ["specify", "plan", "tasks", "implement:1", "implement:2"])
    assert 0
