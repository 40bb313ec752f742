"""`python fake_server.py MODE PORT PIDS`: as a vLLM server looks from outside, up in a moment. Writes its pids to PIDS.

The engine is a child that has a session of its own and ignores SIGTERM: the hardest to get rid of.
"""

import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


def main(mode: str, port: int, pids: Path) -> None:
    engine = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True)
    time.sleep(0.3)  # until it ignores SIGTERM
    pids.write_text(f"{os.getpid()} {engine.pid}")
    if mode == "fails":
        print("ERROR 01-01 00:00:00 [core.py:1] ValueError: the pool holds 3 blocks, 9 are needed", flush=True)
        print("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")
        sys.exit(3)
    if mode == "never":
        print("loading", flush=True)
        time.sleep(600)
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    HTTPServer(("127.0.0.1", port), Health).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
