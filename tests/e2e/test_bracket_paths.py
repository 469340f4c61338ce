"""Files with brackets in their names, such as the routes of Next.js, are files like any other."""

from __future__ import annotations

from tests.support.project import Project

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
WORK = """
    from pathlib import Path
    echo()
    Path("app/[slug].tsx").write_text("slug\\n")
    {more}
"""


def routes(project: Project, more: str = "") -> Project:
    project.flow("routes", ROUTES)
    project.agent(WORK.format(more=more))
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
