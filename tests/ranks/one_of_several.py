"""What tests start by `spawned`: each rank writes down its environment and then does what its line of the file says."""

import json
import os
import signal
import sys
import time
from pathlib import Path

folder, rank = Path(sys.argv[1]), int(os.environ["RANK"])
(folder / f"rank{rank}.json").write_text(json.dumps({"pid": os.getpid(), **os.environ}))
match (folder / "how.txt").read_text().split()[rank]:
    case "fails":
        sys.exit(3)
    case "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    case "waits":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            (folder / f"pressed{rank}").touch()
    case "watches":
        from qsgp.ranks import end_with_parent

        end_with_parent()
        (folder / f"watching{rank}").touch()
        time.sleep(900)
