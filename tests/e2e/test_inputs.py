"""What a step reads and needs: sections, optional files, globs, names with brackets, symbolic links."""

from __future__ import annotations

import pytest
from tests.support.project import Project
from tests.support.reruns import CHAIN, again, chain


@pytest.mark.smoke
def test_a_section_read_counts_alone(project):
    flow = """
        flow: chain
        params: {goal: {required: true}}
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: one.md, makes: tasks.md}
          two: {prompt: Write two., reads: ["tasks.md#Phase 2"], makes: two.md}
    """
    chain(project, flow, "usual()")
    path = project.run_dir() / "tasks.md"

    path.write_text(path.read_text().replace("Lay the ground", "Lay a ground"))
    assert again(project) == []
    path.write_text(path.read_text().replace("Build the house", "Build a house"))
    assert again(project) == ["two"]
    assert "Lay a ground" not in project.prompts()[0] and "Build a house" in project.prompts()[0]


def test_a_section_that_is_not_there_is_an_error_that_names_it(project):
    project.flow(
        "odd",
        """
        flow: odd
        defaults: {retry: {attempts: 0}}
        steps:
          one: {prompt: Write., makes: tasks.md}
          two: {prompt: Write two., reads: ["tasks.md#Phase 9"], makes: two.md}
    """,
    )
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, ["one"])
    assert "tasks.md#Phase 9" in done.stdout


def test_an_optional_read_may_be_missing_and_counts_once_it_is_there(project):
    flow = CHAIN.replace("reads: [two.md]", "reads: [two.md, notes.md?]")
    chain(project, flow, "usual()")
    (project.run_dir() / "notes.md").write_text("A note.\n")

    assert again(project) == ["three"]
    assert "A note." in project.prompts()[0]
    assert again(project) == []
    (project.run_dir() / "notes.md").unlink()
    assert again(project) == ["three"]


@pytest.mark.smoke
def test_a_read_that_is_missing_is_an_error_that_names_it(project):
    project.flow("odd", "flow: odd\nsteps:\n  one: {prompt: Write., reads: [/docs/rules.md], makes: one.md}\n")
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, [])
    assert "docs/rules.md" in done.stdout


def test_a_glob_counts_every_file_it_finds(project):
    project.write("docs/a.md", "A\n")
    chain(project, CHAIN.replace("reads: [one.md]", "reads: [one.md, /docs/*.md]"), "usual()")
    project.write("docs/readme.txt", "not read\n")
    project.commit()
    assert again(project) == []

    project.write("docs/b.md", "B\n")
    project.commit()
    assert again(project) == ["two"]

    (project.root / "docs/a.md").unlink()
    project.commit()
    assert again(project) == ["two"]


def test_what_a_step_needs_must_exist_but_is_not_in_its_key(project):
    flow = CHAIN.replace("reads: [one.md]", "reads: [one.md], needs: [/rules.md]")
    project.write("rules.md", "Rules\n")
    chain(project, flow, "usual()")
    project.write("rules.md", "Other rules\n")
    project.commit()

    assert again(project) == []
    assert "Rules" not in "".join(project.prompts())


def test_a_step_whose_needs_are_missing_is_an_error_that_names_them(project):
    project.flow("odd", "flow: odd\nsteps:\n  one: {prompt: Write., needs: [/rules.md], makes: one.md}\n")
    project.commit()

    done = project.doit("odd")

    assert (done.returncode, project.calls()) == (1, [])
    assert "rules.md" in done.stdout


# --- names with brackets, such as the routes of Next.js


ROUTES = """
    flow: routes
    params: {goal: {required: true}}
    defaults: {retry: {attempts: 0}}
    steps:
      page:
        prompt: Write the page.
        reads: ["/app/[id].tsx", "/lib/[*].ts"]
        makes: "/app/[id]/page.tsx"
        writes: ["/app/[slug].tsx"]
        protect: ["/app/[id].tsx"]
"""


ROUTE_AGENT = """
    from pathlib import Path
    echo()
    Path("app/[slug].tsx").write_text("slug\\n")
    {more}
"""


def routes(project: Project, more: str = "") -> Project:
    project.flow("routes", ROUTES)
    project.agent(ROUTE_AGENT.format(more=more))
    for name in ("app/[id].tsx", "app/i.tsx", "app/s.tsx", "lib/[a].ts", "lib/a.ts"):
        project.write(name, f"as it was: {name}\n")
    project.commit("Routes")
    return project


def test_a_route_is_read_made_and_written(project: Project) -> None:
    routes(project)

    done = project.doit("routes", "--goal=Routes")

    assert done.returncode == 0, done.stdout + done.stderr
    prompt = project.prompts()[0]
    shown = [name for name in ("app/[id].tsx", "lib/[a].ts", "app/i.tsx", "lib/a.ts") if f"as it was: {name}" in prompt]
    assert shown == ["app/[id].tsx", "lib/[a].ts"]
    assert project.read("app/[slug].tsx") == "slug\n"
    assert project.git("status", "--porcelain") == ""
    assert "app/[id]/page.tsx" in project.git("ls-files")


def test_a_changed_route_makes_the_step_stale_and_its_namesake_does_not(project: Project) -> None:
    routes(project)
    assert project.doit("routes", "--goal=Routes").returncode == 0
    project.forget_calls()

    project.write("app/i.tsx", "changed\n")
    project.commit()
    assert (project.doit("routes").returncode, project.calls()) == (0, [])

    project.write("app/[id].tsx", "changed\n")
    project.commit()
    assert (project.doit("routes").returncode, project.calls()) == (0, ["page"])


def test_a_protected_route_is_put_back_and_its_namesake_is_outside_of_the_scope(project: Project) -> None:
    routes(project, 'Path("app/[id].tsx").write_text("mine\\n"); Path("app/s.tsx").write_text("mine\\n")')

    done = project.doit("routes", "--goal=Routes")

    assert done.returncode != 0
    assert project.read("app/[id].tsx") == "as it was: app/[id].tsx\n"
    assert project.read("app/s.tsx") == "as it was: app/s.tsx\n"


# --- folders that are symbolic links


FLOW = "flow: work\nsteps:\n  one: {{prompt: A, makes: {makes}}}\n"


@pytest.mark.smoke("../outside-of-it")
@pytest.mark.parametrize("target", ["inner", "../outside-of-it"])
def test_a_linked_folder_of_runs_is_named_and_no_agent_is_called(target: str, project: Project) -> None:
    (project.root / target).mkdir()
    project.write("inner/.keep", "")
    (project.root / "specs").symlink_to(target)
    project.flow("work", FLOW.format(makes="one.md"))
    before = project.commit("A link")

    done = project.doit("work", "--goal=x")

    said = done.stdout + done.stderr
    assert done.returncode == 1 and project.calls() == [], said
    assert f"specs is a symbolic link (to {target}), so the run folder cannot be watched or committed" in said
    assert "rm 'specs' && mkdir 'specs'" in said
    assert (project.git("rev-parse", "HEAD").strip(), project.git("branch", "--show-current")) == (before, "main\n")
    assert project.git("status", "--porcelain") == "" and list((project.root / target).glob("0*")) == []

    (project.root / "specs").unlink()
    (project.root / "specs").mkdir()
    project.commit("A folder")
    assert project.doit("work", "--goal=x").returncode == 0


@pytest.mark.parametrize("makes", ["/docs/deep/one.md", "pages/one.md"])
def test_so_is_a_link_above_an_artifact(makes: str, project: Project) -> None:
    project.flow(
        "work", f"flow: work\nsteps:\n  zero: {{prompt: A, makes: zero.md}}\n  one: {{prompt: A, makes: {makes}}}\n"
    )
    project.write("inner/deep/.keep", "")
    link = "docs" if makes.startswith("/") else "specs/001-x/pages"
    project.commit("A flow")
    if link != "docs":
        assert project.doit("work", "--goal=x", "--next").returncode == 0
    (project.root / link).symlink_to(project.root / "inner")
    before = project.calls()

    done = project.doit("work", "--goal=x")

    assert done.returncode == 1 and project.calls() == before
    assert f"{link} is a symbolic link" in done.stdout + done.stderr
