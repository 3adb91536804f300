"""Declares a model, as `quire model put` does it: the SDK has no call for it."""

import base64
import hashlib
import hmac
import json
import ssl
import time
import urllib.parse
import urllib.request
from email.utils import formatdate


def put_model(endpoint, key, authority, database, model):
    """Returns when it is built over the items that are there."""

    def request(method, path, body=None):
        date = formatdate(usegmt=True)
        text = f"{method.lower()}\n_quire\n{path}\n{date.lower()}\n\n"
        signature = base64.b64encode(hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()).decode()
        headers = {
            "authorization": urllib.parse.quote(f"type=master&ver=1.0&sig={signature}", safe=""),
            "x-ms-date": date,
            "x-ms-version": "2020-07-15",
        }
        data = json.dumps(body).encode() if body is not None else None
        sent = urllib.request.Request(f"{endpoint.rstrip('/')}/{path}", data, headers, method=method)
        with urllib.request.urlopen(sent, context=ssl.create_default_context(cafile=authority)) as answer:
            return json.load(answer)

    path = f"_quire/dbs/{database}/model"
    request("PUT", path, model)
    while True:
        states = {declaration["state"] for declaration in request("GET", f"{path}/status")["declarations"]}
        if states <= {"active"}:
            return
        assert "failed" not in states, "the model cannot be built"
        time.sleep(0.05)
