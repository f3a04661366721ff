"""A web server for one file, whose paths behave as mirrors do."""

import contextlib
import http.server
import re
import threading


class Mirrors:
    """``url("cut/100")`` breaks off after 100 bytes; what was asked is in ``asked``, as (path, range)."""

    def __init__(self, content):
        self.content, self.asked = content, []

    def url(self, behaviour):
        return f"http://127.0.0.1:{self.port}/{behaviour}"


@contextlib.contextmanager
def mirrors(content):
    site = Mirrors(content)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            asked = self.headers.get("Range")
            behaviour, _, number = self.path.strip("/").partition("/")
            site.asked.append((behaviour, asked))
            body, start = site.content, 0
            if behaviour == "missing" or len(site.asked) > 50:
                self.send_error(404)
                return
            if behaviour == "wrong":
                body = bytes(len(body))
            if behaviour == "page":
                body = b"<html>please log in</html>"
            if behaviour == "longer":
                body += b"more"
            if asked and behaviour != "no-range":
                start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1])
                if start >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206)
                said = start + 1 if behaviour == "liar" else start
                self.send_header("Content-Range", f"bytes {said}-{len(body) - 1}/{len(body)}")
            else:
                self.send_response(200)
            if behaviour == "chunked":
                self.send_header("Transfer-Encoding", "chunked")
            elif behaviour != "no-length":
                self.send_header("Content-Length", str(len(body) - start))
            self.send_header("Connection", "close")
            self.end_headers()
            rest = body[start:]
            if behaviour == "chunked":
                self.wfile.write(f"{len(rest):x}\r\n".encode())
                self.close_connection = True
            self.wfile.write(rest[: int(number)] if number else rest)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
