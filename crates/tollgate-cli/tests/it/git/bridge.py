"""Smart HTTP on loopback: `git http-backend` behind Python's own server.

Prints its port. With a file `cut` in the repository, the next push is handed to git whole, and its answer is thrown away:
the connection ends after the server has taken it. With a file `hang`, pushes are not answered at all.
"""

import os
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ROOT, NAME = os.path.split(sys.argv[1])


class Bridge(BaseHTTPRequestHandler):
    def flag(self, name):
        return os.path.join(ROOT, NAME, name)

    def serve(self):
        path, _, query = self.path.partition("?")
        body = b""
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        push = self.command == "POST" and path.endswith("git-receive-pack")
        if push and os.path.exists(self.flag("hang")):
            threading.Event().wait(1000)
        environment = dict(
            os.environ,
            GIT_PROJECT_ROOT=ROOT,
            GIT_HTTP_EXPORT_ALL="1",
            PATH_INFO=path,
            QUERY_STRING=query,
            REQUEST_METHOD=self.command,
            CONTENT_TYPE=self.headers.get("Content-Type", ""),
            HTTP_CONTENT_ENCODING=self.headers.get("Content-Encoding", ""),
            GIT_PROTOCOL=self.headers.get("Git-Protocol", ""),
            REMOTE_ADDR="127.0.0.1",
        )
        answer = subprocess.run(["git", "http-backend"], input=body, capture_output=True, env=environment).stdout
        if push and len(body) > 4 and os.path.exists(self.flag("cut")):
            os.remove(self.flag("cut"))
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        head, _, rest = answer.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = next((value for name, value in fields if name == "Status"), "200 OK")
        self.send_response(int(status.split(" ")[0]))
        for name, value in fields:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest)

    do_GET = do_POST = serve

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Bridge)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
