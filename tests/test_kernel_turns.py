"""A kernel file is timed against the kernel in place; on a CPU with PyTorch's own backend."""

import pytest

from tilebench_core.errors import PluginError, RequestError
from tilebench_core.testing.kernel_turns import kernel_of, main

FILE = """import torch
from tilebench_core import Kernel


def run(x):
    return {expression}


KERNEL = Kernel(run=run)
"""


@pytest.fixture
def written(tmp_path):
    def write(expression: str):
        path = tmp_path / "changed.py"
        path.write_text(FILE.format(expression=expression))
        return path

    return write


def turns(path, *more: str) -> int:
    return main(["softmax", "torch", str(path), "--dtype", "fp32", "--samples", "3", "--device", "cpu", *more])


def test_both_take_turns_and_the_ratio_is_the_files_to_the_one_in_place(written, capsys, monkeypatch):
    from tilebench_core.timing import Sample, Timing

    def timed(entries, settings, clock, before):
        for entry in entries:
            entry.launch()
        assert settings.repeat == 3
        return [Timing(samples=[Sample(0, us)]) for us in (8.0, 4.0)]

    monkeypatch.setattr("tilebench_core.testing.turns.time_entries", timed)
    assert turns(written("torch.softmax(x, dim=-1)"), "--cases", "smoke") == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("softmax fp32 ")
    assert line.endswith("in place 8.00 µs, file 4.00 µs, 0.500")
    assert last == "the file's kernel takes 0.500 times as long, geometric mean of 1"


def test_a_wrong_result_is_not_timed(written, capsys):
    assert turns(written("torch.log_softmax(x, dim=-1)"), "--cases", "smoke,edge0") == 1
    out = capsys.readouterr().out
    assert "WRONG" in out
    assert "nothing was timed" in out


def test_places_in_the_grid_are_cases_and_other_words_are_refused(written, capsys):
    assert turns(written("torch.softmax(x, dim=-1)"), "--cases", "0") == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    with pytest.raises(RequestError, match="cases 'big'; expected smoke, edge, grid, first, largest"):
        turns(written("x"), "--cases", "big")
    with pytest.raises(RequestError, match="cases '99'; the grid of softmax has places 0 to 19"):
        turns(written("x"), "--cases", "99")


def test_a_file_that_fails_or_does_not_support_a_case_is_told_and_the_others_go_on(written, capsys):
    path = written("torch.softmax(x, dim=-1) if len(x) > 1 else torch.nothing")
    assert turns(path, "--cases", "edge0,smoke") == 1
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.split(": ", 1)[1].startswith("LaunchError: ")
    assert "in place" in second
    path.write_text(path.read_text().replace("run=run)", "run=run, unsupported=lambda case, device: 'too small')"))
    assert turns(path, "--cases", "smoke") == 0
    assert "UNSUPPORTED: too small" in capsys.readouterr().out


def test_an_interpreted_backend_a_missing_file_and_one_without_a_kernel_are_told(written, tmp_path):
    with pytest.raises(RequestError, match="interpreted on CPU"):
        main(["softmax", "triton", str(written("x")), "--device", "cpu"])
    with pytest.raises(RequestError, match=r"nothing\.py: no such kernel file"):
        kernel_of(tmp_path / "nothing.py")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(PluginError, match="exports no `KERNEL"):
        kernel_of(tmp_path / "empty.py")
