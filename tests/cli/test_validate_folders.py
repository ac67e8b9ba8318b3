"""`validate` on folders: what lies there for other tools is ignored and named once; `--ignore` leaves out more."""

from pathlib import Path

import pytest

from tests.support.command_line import Line

NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: NAME}\n"
FILES = {
    "namespace.yaml": NAMESPACE.replace("NAME", "a"),
    "values.yaml": "replicaCount: 1\nimage: {tag: x}\n",
    "patch.yaml": "- {op: add, path: /x, value: 1}\n",
    "package.json": '{"name": "x"}',
    "fragment.yml": "spec: {replicas: 3}\n",
    "empty.yaml": "# nothing\n",
    "half.yaml": "a: [1\n",
    "kustomization.yaml": "resources: [namespace.yaml]\n",
}
OTHERS = sorted(set(FILES) - {"namespace.yaml"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, FILES)
    return tmp_path


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def ignored(folder: Path, *names: str) -> str:
    what = "1 file is not a Kubernetes manifest and is" if len(names) == 1 else f"{len(names)} files are not Kubernetes"
    rest = "" if len(names) == 1 else " manifests and are"
    return f"{folder}:1: note: {what}{rest} ignored: {', '.join(names)}; to check such a file, pass its path"


def test_what_is_no_manifest_in_a_folder_is_ignored_with_one_line(gpuconsole: Line, folder: Path) -> None:
    result = gpuconsole("validate", "--strict", folder)
    assert result.status == 0
    assert result.lines == [ignored(folder, *OTHERS), "read: 1 Namespace", "0 errors, 0 warnings, 1 note"]


def test_many_ignored_files_are_counted_after_the_first_eight(gpuconsole: Line, tmp_path: Path) -> None:
    write(tmp_path, {f"v{number:02}.yaml": "a: 1" for number in range(11)})
    (line, *_) = gpuconsole("validate", tmp_path).lines
    names = ", ".join(f"v{number:02}.yaml" for number in range(8))
    assert line.startswith(
        f"{tmp_path}:1: note: 11 files are not Kubernetes manifests and are ignored: {names} and 3 more;"
    )


def test_a_file_that_is_named_itself_is_checked(gpuconsole: Line, folder: Path) -> None:
    result = gpuconsole("validate", folder / "values.yaml")
    assert result.status == 1
    assert "this is a part of a manifest (replicaCount, image)" in result.lines[0]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: [}\n",
        '{"apiVersion": "v1", "kind": "Namespace", ',
        "  kind: A\n  apiVersion: b\n - {",
    ],
)
def test_a_manifest_that_is_broken_is_an_error_as_ever(gpuconsole: Line, tmp_path: Path, text: str) -> None:
    write(tmp_path, {"broken.yaml": text})
    result = gpuconsole("validate", tmp_path)
    assert (result.status, result.lines[-1]) == (1, "1 error, 0 warnings, 0 notes")


def test_a_fragment_beside_a_manifest_in_one_file_is_an_error_as_ever(gpuconsole: Line, tmp_path: Path) -> None:
    write(tmp_path, {"both.yaml": f"{FILES['namespace.yaml']}---\nspec: {{}}\n"})
    assert gpuconsole("validate", tmp_path).lines[-1] == "1 error, 0 warnings, 0 notes"


def test_what_a_chart_renders_from_its_files_is_ignored_and_its_plain_manifests_are_read(
    gpuconsole: Line, tmp_path: Path
) -> None:
    plain = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
    loop = f"{plain}---\nkind: X\napiVersion: v1\nlist:\n{{{{- range .Values.all }}}}\n- role: worker\n{{{{- end }}}}\n"
    chart = {"c/Chart.yaml": "apiVersion: v2\nname: c\n", "c/crds/a.yaml": plain, "c/files/runtimes/b.yaml": loop}
    write(tmp_path, chart)
    done = gpuconsole("validate", "--strict", tmp_path)
    assert done.status == 0
    assert "read: 1 Namespace" in done.lines
    assert any("c/files/runtimes/b.yaml" in line for line in done.lines)


def test_templates_of_a_chart_are_ignored_and_other_templates_are_errors(gpuconsole: Line, tmp_path: Path) -> None:
    template = "apiVersion: v1\nkind: Namespace\nmetadata: {name: {{ .Values.name }}}\n{{- if x }}\n"
    chart = {"c/Chart.yaml": "apiVersion: v2\nname: c\n", "c/templates/deep/a.yaml": template}
    write(tmp_path, chart)
    assert gpuconsole("validate", tmp_path).lines[0] == ignored(tmp_path, *chart)
    (tmp_path / "c" / "Chart.yaml").unlink()
    assert "this is a template, not a manifest yet" in gpuconsole("validate", tmp_path).lines[0]


@pytest.mark.parametrize(
    "said",
    [
        "patches: [{path: ../parts/p.yaml}]",
        "patchesStrategicMerge: [../parts/p.yaml]",
        "patchesJson6902: [{target: {kind: Job}, path: ../parts/p.yaml}]",
        "replacements: [{path: ../parts/p.yaml}]",
    ],
)
def test_patches_that_a_kustomization_names_are_ignored_though_they_look_like_objects(
    gpuconsole: Line, tmp_path: Path, said: str
) -> None:
    head = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    patch = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {suspend: true}\n"
    write(tmp_path, {"over/kustomization.yaml": f"{head}{said}\n", "parts/p.yaml": patch})
    result = gpuconsole("validate", tmp_path)
    assert result.lines[1:] == [
        ignored(tmp_path, "parts/p.yaml"),
        "read: no supported objects",
        "0 errors, 0 warnings, 2 notes",
    ]
    left_out = gpuconsole("validate", tmp_path, "--ignore", "over")
    assert left_out.lines[0] == ignored(tmp_path, "parts/p.yaml")


GLOBS = {
    "a name": ["values.yaml"],
    "a glob of names": ["v*.yaml"],
    "a folder": ["chart"],
    "a folder with its slash": ["chart/"],
    "a path below the folder": ["chart/values.yaml"],
    "a glob of paths": ["*/values.yaml"],
    "several": ["nothing", "val*"],
}


@pytest.mark.parametrize("globs", GLOBS.values(), ids=GLOBS)
def test_files_that_match_a_glob_are_left_out(gpuconsole: Line, tmp_path: Path, globs: list[str]) -> None:
    write(tmp_path, {"a.yaml": FILES["namespace.yaml"], "chart/values.yaml": NAMESPACE.replace("NAME", "b")})
    options = [part for glob in globs for part in ("--ignore", glob)]
    assert gpuconsole("validate", tmp_path).lines == ["read: 2 Namespace", "0 errors, 0 warnings, 0 notes"]
    assert gpuconsole("validate", tmp_path, *options).lines == ["read: 1 Namespace", "0 errors, 0 warnings, 0 notes"]


def test_a_glob_leaves_out_files_that_are_named_as_well(gpuconsole: Line, folder: Path) -> None:
    files = [folder / name for name in FILES]
    others = [part for name in OTHERS for part in ("--ignore", f"*/{name}")]
    result = gpuconsole("validate", *files, *others)
    assert (result.status, result.lines) == (0, ["read: 1 Namespace", "0 errors, 0 warnings, 0 notes"])


def test_a_simulation_starts_from_a_folder_with_other_files(gpuconsole: Line, folder: Path) -> None:
    assert gpuconsole("simulate", folder, "--until", "1m").status == 0
