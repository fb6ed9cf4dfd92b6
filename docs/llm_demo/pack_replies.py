"""Write scripted replies out of an installed pack's kernels: `python pack_replies.py replies.yaml OPERATOR…`.

Ten rounds per operator for all three DSLs in one reply, for a demonstration on a GPU without a model: a compile error, a
wrong result, a kernel that does its work four times, prose, one that does it twice, a regression to three times, a violation,
a cut reply, recovery, and the kernel itself, which may end the trajectory at 80 % of the roofline.
Only kernels that stand in one file can be candidates.

    tilebench llm run operator=[matrix_transpose,reverse_array] backend=[triton,cutile,tilelang] protocol=published \
        model=scripted model.options.script=replies.yaml campaign=llm-pack
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import yaml

from tilebench_core.registry import installed

BACKENDS = ("triton", "cutile", "tilelang")
OPERATORS = ("matrix_transpose", "reverse_array", "interleave", "destindex", "max_pool2d", "jacobi_stencil_2d")
MISSPELT = {
    "triton": (r"\btl\.program_id\(", "tl.programme_id("),
    "cutile": (r"\bct\.bid\(", "ct.bidd("),
    "tilelang": (r"\bT\.Kernel\(", "T.Kernell("),
}
WRAPPED = """\
def run(*inputs, **config):
    for _ in range({times}):
        out = _run(*inputs, **config)
    first = out[0] if isinstance(out, tuple) else out
    return {result}


KERNEL = """


def compile_error(source: str, backend: str) -> str:
    """The kernel with a function of the DSL misspelt."""
    return re.sub(*MISSPELT[backend], source)


def wrapped(source: str, result: str, times: int = 1) -> str:
    """The kernel's `run` under another name, and one around it that calls it so many times and returns `result`."""
    around = WRAPPED.format(result=result, times=times)
    return source.replace("def run(", "def _run(", 1).replace("KERNEL = ", around, 1)


def rounds(sources: dict[str, str]) -> list[tuple[str, str]]:
    """(text, finish) of each round."""

    def joint(change) -> str:
        blocks = [f"`impl_{name}.py`\n```python\n{change(source, name)}```\n" for name, source in sources.items()]
        return "\n".join(blocks)

    whole = joint(lambda source, name: source)

    def slow(times: int) -> tuple[str, str]:
        return joint(lambda source, name: wrapped(source, "out", times)), "stop"

    return [
        (joint(compile_error), "stop"),
        (joint(lambda source, name: wrapped(source, "first[:0]")), "stop"),
        slow(4),
        ("Which size matters most to you?", "stop"),
        slow(2),
        slow(3),
        (joint(lambda source, name: wrapped(source, "torch.clone(first)")), "stop"),
        (whole[: len(whole) // 4], "length"),
        slow(2),
        (whole, "stop"),
    ]


def main(target: Path, names: list[str]) -> None:
    """Write the replies of the operators `names` to `target`."""
    registry = installed()
    replies = []
    for name in names:
        operator = registry.operator(name)
        kernels = {backend: registry.kernels_for(operator, backend)[0] for backend in BACKENDS}
        sources = {backend: kernel.path.read_text(encoding="utf-8") for backend, kernel in kernels.items()}
        for number, (text, finish) in enumerate(rounds(sources)):
            # Invented, as the replies are; what a token is in English text and code is about four bytes.
            usage = {
                "input_tokens": 30_000 + 500 * number,
                "cached_input_tokens": 0,
                "output_tokens": len(text) // 4 + 200,
            }
            replies.append({"operator": operator.name, "text": text, "finish": finish, "usage": usage})
    target.write_text(yaml.safe_dump({"replies": replies}, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(OPERATORS))
