"""Run the side-by-side measurements with Lamina among the libraries.

    python bench/run.py FOLDER --workloads W3_grad,W10 --peers torch1,lamina1

FOLDER holds the runner (bench.py), its workloads and the other libraries'
adapters; the remaining options are the runner's. Needs those libraries, so
it wants an environment of its own. One process a library, rounds
interleaved, every library checked to compute the same numbers.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def main():
    if len(sys.argv) < 2 or not pathlib.Path(sys.argv[1], "bench.py").exists():
        sys.exit(f"{__doc__}\nno bench.py in "
                 f"{sys.argv[1] if len(sys.argv) > 1 else 'no folder'}")
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder, "bench")
        shutil.copytree(sys.argv[1], work, copy_function=shutil.copyfile)
        for path in (work, work / "adapters"):
            path.chmod(0o755)
        shutil.copyfile(HERE / "lamina_.py", work / "adapters/lamina_.py")
        path = os.pathsep.join(filter(None, (
            str(HERE.parent / "src"), os.environ.get("PYTHONPATH"))))
        sys.exit(subprocess.run(
            [sys.executable, "bench.py", *sys.argv[2:]], cwd=work,
            env={**os.environ, "PYTHONPATH": path}).returncode)


if __name__ == "__main__":
    main()
