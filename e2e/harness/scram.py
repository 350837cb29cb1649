"""The client's side of SCRAM-SHA-256 (RFC 5802, RFC 7677), with the standard library only."""

import base64
import functools
import hashlib
import hmac
import os


@functools.lru_cache(maxsize=64)
def salted(password, salt, rounds):
    """Computes the salted password, which is slow. The result is cached for each password and salt."""
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)


class Client:
    """The proof of a password in one login."""

    def __init__(self, password):
        self.password = password
        self.bare = "n=,r=" + base64.b64encode(os.urandom(18)).decode()

    def first(self):
        return ("n,," + self.bare).encode()

    def last(self, challenge):
        """Returns the answer to the server's nonce, salt and number of rounds."""
        asked = dict(part.split("=", 1) for part in challenge.decode().split(","))
        key = salted(self.password, base64.b64decode(asked["s"]), int(asked["i"]))
        without_proof = "c=biws,r=" + asked["r"]
        signed = ",".join([self.bare, challenge.decode(), without_proof]).encode()
        client_key = hmac.digest(key, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature))
        return (without_proof + ",p=" + base64.b64encode(proof).decode()).encode()
