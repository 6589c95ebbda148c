"""The command line: what it prints, and that a user's mistake gives one clear line and exit status 1."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import redfuser as rf
from redfuser.cli import main

MODULE = """
    import numpy as np

    limit = 3


    def softmax(x):
        mass = np.exp(x - x.max(axis=1, keepdims=True))
        return mass / mass.sum(axis=1, keepdims=True)


    def scaled(x, *, scale=2.0):
        return (x * scale).sum(axis=1)


    def broken(x):
        return x.sum(axis=1) + no_such_name


    def branches(x):
        return x.max() if x.sum() > 0 else x.min()
"""


@pytest.fixture(autouse=True)
def restored_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))  # commands make the file's folder importable


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(textwrap.dedent(MODULE))
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{file}"], "is not FILE.py:FUNCTION"),
        (["missing.py:softmax"], "there is no Python file 'missing.py'"),
        (["{file}:softmx", "--arg", "x=4x8:float32"], "did you mean softmax?"),
        (["{file}:nothing_like_it"], "it has branches, broken, scaled, softmax"),
        (["{file}:limit"], "limit in {file} is a int, not a function"),
        (["{file}:softmax"], "needs x; add --arg x=SHAPE:DTYPE"),
        (["{file}:softmax", "--arg", "x"], "is not NAME=SHAPE:DTYPE or NAME=VALUE"),
        (["{file}:softmax", "--arg", "x=4x8"], "without a dtype; write x=4x8:float32"),
        (["{file}:softmax", "--arg", "x=0x8"], "without a dtype; write x=0x8:float32"),
        (["{file}:softmax", "--arg", "x=4xn"], "'4xn' is neither SHAPE:DTYPE"),
        (["{file}:softmax", "--arg", "x=4x8:float33"], "'float33' is no dtype"),
        (["{file}:softmax", "--arg", "x=4x8y:float32"], "'4x8y' is no size"),
        (["{file}:softmax", "--arg", "x=4,:float32"], "'' is no size"),
        (["{file}:softmax", "--arg", "x=axb:float32"], "joined by commas; write a,b"),
        (["{file}:softmax", "--arg", "x=8xn:float32"], "joined by commas; write 8,n"),
        (
            ["{file}:softmax", "--arg", "y=4x8:float32"],
            "softmax has no parameter y; its signature is softmax(x)",
        ),
        (["{file}:softmax", "--arg", "x=4x8:float32", "--arg", "x=4x8:float32"], "given twice"),
        (
            ["{file}:broken", "--arg", "x=4x8:float32"],
            "mine.py:17: NameError: name 'no_such_name' is not defined",
        ),
        (["{file}:branches", "--arg", "x=4x8:float32"], "x.sum() > 0"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "source", "tune"])
def test_mistakes_are_explained(
    command: str, arguments: list[str], message: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, *(a.format(file=file) for a in arguments)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert message.format(file=file) in captured.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "mine.py:1: SyntaxError"),
        ("import math\n\nmath.sqrt(-1)\n", "mine.py:3: ValueError"),
        ("import sys\nsys.exit('stop')\n", "mine.py:2: SystemExit: stop"),
    ],
)
def test_a_file_that_fails_is_blamed(text: str, message: str, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(text)
    assert main(["explain", f"{file}:f"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["fly"], ["explain"], ["source", "x.py:f", "--target", "fortran"], ["demo", "--top", "0"]]
)
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "Usage" in capsys.readouterr().err


def test_a_language_that_does_not_exist_is_named_once(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", f"{file}:softmax", "--arg", "x=8:float32", "--target", "ptx"]) == 2
    assert "Invalid value for '--target': 'ptx' is not one of 'c', 'cuda'" in capsys.readouterr().err


def test_source_prints_cuda_for_an_architecture(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["source", f"{file}:softmax", "--arg", "x=8x64:float32", "--target", "cuda", "--arch", "sm_90a"]) == 0
    text = capsys.readouterr().out
    assert "for sm_90a" in text
    assert 'extern "C" __global__' in text
    assert main(["source", f"{file}:softmax", "--arg", "x=8x64:float32", "--target", "cuda", "--arch", "z80"]) == 1
    assert "arch='z80' is no GPU" in capsys.readouterr().err


def test_explain_prints_the_report(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:softmax", "--arg", "x=rows,n:float32"]) == 0
    text = capsys.readouterr().out
    assert f"{rf.Verdict.FUSIBLE}, 1 pass over" in text
    assert "exp(" in text


def test_explain_as_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:softmax", "-a", "x=4x8:float32", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == rf.Verdict.FUSIBLE
    assert (report["passes"], report["passes_before"]) == (1, 2)


def test_arguments_are_found_by_name(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{file}:scaled", "--arg", "scale=0.5", "--arg", "x=4x8:float32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "scaled"


def test_explain_writes_a_page(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "report.html"
    assert main(["explain", f"{file}:softmax", "-a", "x=4x8:float32", "--html", str(page)]) == 0
    assert capsys.readouterr().out == f"FUSIBLE, 1 pass: see {page}\n"
    text = page.read_text(encoding="utf-8")
    assert "<h1>redfuser: softmax</h1>" in text
    assert "Rules that suffice" in text
    assert main(["explain", f"{file}:softmax", "-a", "x=4x8:float32", "--html", str(tmp_path)]) == 1
    assert "--html" in capsys.readouterr().err
    assert main(["explain", f"{file}:softmax", "-a", "x=4x8:float32", "--html", str(page), "--json"]) == 2


def test_explain_predicts_for_a_device(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", f"{file}:softmax", "-a", "x=1024x4096:float32", "--json"]
    assert main([*arguments, "--device", "h100"]) == 0
    (on_gpu,) = json.loads(capsys.readouterr().out)["cascades"]
    assert on_gpu["prediction"]["device"] == "h100"
    assert on_gpu["prediction"]["bound"] == "memory"
    assert main([*arguments, "--device", "avx2"]) == 0
    (on_cpu,) = json.loads(capsys.readouterr().out)["cascades"]
    assert on_cpu["prediction"]["seconds"] > on_gpu["prediction"]["seconds"]
    assert "frontier" not in on_cpu
    assert on_cpu["timeline"]
    assert main([*arguments, "--device", "abacus"]) == 1
    assert "use a10, a100" in capsys.readouterr().err


def test_explain_shows_the_frontier(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", f"{file}:softmax", "-a", "x=64x1000:float32", "--frontier", "--device", "avx2"]
    assert main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["cascades"]
    points = {p["name"]: p for p in found["frontier"]["points"]}
    assert points["stable"]["error"] <= 1
    assert points["base sums"]["error"] is None  # e^10000
    assert found["frontier"]["choice"]["stable"]["name"] == "stable"
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "<- stable" in text
    assert "predicted    avx2:" in text


def test_a_function_keeps_its_own_parameters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "own.py"
    own.write_text("def f(x, frontier):\n    return (x * frontier).sum(-1)\n")
    assert main(["explain", f"{own}:f", "-a", "x=4x8:float32", "-a", "frontier=2.0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "f"


def test_source_reports_on_cuda_kernels(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["source", f"{file}:softmax", "--arg", "x=8x64:float32", "--target", "cuda", "--report"]
    assert main(arguments) == 0
    assert "CUDA kernel softmax for sm_80" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert "__global__" in data["source"]
    assert data["report"]["kernels"][0]["launches"][0]["threads"] == 128
    assert main([*arguments[:4], "--report"]) == 1
    assert "no report for language 'c'" in capsys.readouterr().err


def test_source_is_c(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["source", f"{file}:softmax", "--arg", "x=4x8:float32"]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "#include" in text
    written = tmp_path / "kernel.c"
    assert main([*arguments, "--target", "c", "--out", str(written)]) == 0
    assert capsys.readouterr().out == ""
    assert written.read_text().strip() == text.strip()
    assert main([*arguments, "--out", str(tmp_path / "no" / "folder.c")]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_explain_finds_the_rules_that_suffice(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("import numpy as np\ndef lse(x):\n    m = x.max(-1, keepdims=True)\n"
                    "    return np.log(np.exp(x - m).sum(-1)) + m[..., 0]\n")
    assert main(["explain", f"{file}:lse", "--arg", "x=4x100:float32", "--rules"]) == 0
    out = capsys.readouterr().out
    assert "rules that suffice:" in out
    assert "telescope" in out.split("rules that suffice:")[1]


def test_rules_states_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    from redfuser.rules import APPROXIMATE, default

    assert main(["rules", "--json", "--no-check"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [law.name for law in (*default, *APPROXIMATE["requantize"])]
    assert all(row["law"] and row["group"] and row["ok"] is None for row in rows)


def test_a_wrong_rule_fails_the_check(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    import redfuser.cli.rules

    @rf.rule("exact")
    def wrong(x, y):  # type: ignore[no-untyped-def]
        """e^(x+y) = e^x + e^y, which is false"""
        return np.exp(x + y), np.exp(x) + np.exp(y)

    @rf.rule("exact")
    def right(x, y):  # type: ignore[no-untyped-def]
        """e^(x+y) = e^x e^y"""
        return np.exp(x + y), np.exp(x) * np.exp(y)

    monkeypatch.setattr(redfuser.cli.rules, "default", rf.ruleset("two", [right, wrong]))
    assert main(["rules", "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["ok"] for row in rows[:2]] == [True, False]
    assert all(row["ok"] for row in rows[2:])
    assert rows[1]["counterexample"]


def test_doctor_finds_compiler_and_cache(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["doctor", "--json"])
    facts = json.loads(capsys.readouterr().out)
    assert facts["redfuser"]["version"] == rf.__version__
    assert facts["libraries"]["numpy"]
    assert status == int("problem" in facts["compiler"] or "problem" in facts["cache"])


def test_doctor_without_a_compiler(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert main(["doctor", "--json"]) == 1
    assert "no-such-compiler" in json.loads(capsys.readouterr().out)["compiler"]["problem"]


def test_doctor_with_a_cache_that_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").touch()
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path / "taken" / "cache"))
    assert main(["doctor"]) == 1
    assert "is no writable folder" in capsys.readouterr().out


def test_doctor_counts_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kernel.so").write_bytes(b"12345")
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["cache"] == {"folder": str(tmp_path), "files": 1, "bytes": 5}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"redfuser {rf.__version__}\n"


def test_without_the_extra_it_says_how_to_install_it() -> None:
    code = "import sys; sys.modules['typer'] = None; from redfuser.cli import main; sys.exit(main(['demo']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: the command line needs typer; install it with: pip install 'redfuser[cli]'\n"


def test_module_and_script_are_the_same_command() -> None:
    done = subprocess.run([sys.executable, "-m", "redfuser", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"redfuser {rf.__version__}\n"
