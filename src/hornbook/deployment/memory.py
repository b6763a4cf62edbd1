"""Peak memory of an ONNX file, measured in a fresh process that opens it and runs one input.

The process runs this file as a script, so that neither hornbook nor torch is counted.
"""

import json
import subprocess
import sys
from pathlib import Path


def peak_memory(file: Path, shape: tuple[int, ...]) -> dict[str, int]:
    """Measures the peak memory in bytes for one input of this shape on one CPU thread: `peak`, of the whole process,
    and `without_model`, of Python and onnxruntime before the model is opened."""
    command = [sys.executable, __file__, str(file), json.dumps(shape)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it was killed (signal {-done.returncode})"]
        raise ValueError(f"{file} could not be run in a separate process: {lines[-1]}")
    return json.loads(done.stdout)


def _peak_bytes() -> int:
    """Peak memory of this process. `ru_maxrss` on Linux would include the parent process."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _run(file: str, shape: list[int]) -> dict[str, int]:
    import numpy
    import onnxruntime

    before = _peak_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    session.run(None, {each.name: numpy.ones(shape, numpy.int64) for each in session.get_inputs()})
    return {"peak": _peak_bytes(), "without_model": before}


if __name__ == "__main__":
    print(json.dumps(_run(sys.argv[1], json.loads(sys.argv[2]))))
