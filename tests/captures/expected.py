"""Writes expected.json, or with --check exits 1 if expected.json would change.

Made without any code of steadyload, so that a mistake in its decoder cannot
repeat itself here: this file has its own HTTP head parser, dechunker, SSE
splitter and judgement, all slow and plain. README.md explains the fields.
"""

import base64
import gzip
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
# By the end of the request path, the longer one first.
APIS = {"/chat/completions": "openai-chat", "/completions": "openai-completions"}
APIS["/generate"] = "sglang-generate"  # its growing text is not judged here yet
REASONING = ("reasoning_content", "reasoning")
DELTA_TEXT = ("content", "tool_calls", "refusal", *REASONING)


def parse_head(wire):
    """(status, headers, offset of the first body byte); status None: no head."""
    end = wire.find(b"\r\n\r\n")
    if end < 0:
        return None, {}, len(wire)
    first, *rest = wire[:end].decode("latin-1").split("\r\n")
    fields = [line.partition(":") for line in rest]
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return int(first.split(" ")[1]), headers, end + 4


def dechunk(wire, at):
    """(wire offset of each body byte, offset after the last chunk or None)."""
    offsets = []
    while (eol := wire.find(b"\r\n", at)) >= 0:
        size, at = int(wire[at:eol].split(b";")[0], 16), eol + 2
        if size == 0:  # trailers, if any, then an empty line: CR LF CR LF either way
            end = wire.find(b"\r\n\r\n", eol)
            return offsets, (end + 4 if end >= 0 else None)
        offsets.extend(range(at, min(at + size, len(wire))))
        at += size + 2
        if at > len(wire):
            break
        assert wire[at - 2 : at] == b"\r\n", "a chunk without its CR LF"
    return offsets, None


def read_body(wire, status, headers, start):
    """(offsets, framing, offset after the body, or None if it is incomplete)."""
    if status in (None, 204, 304):
        return [], "none", start if status else None
    if "chunked" in headers.get("transfer-encoding", "").lower():
        offsets, end = dechunk(wire, start)
        return offsets, "chunked", end
    if "content-length" in headers:
        end = start + int(headers["content-length"])
        offsets = list(range(start, min(end, len(wire))))
        return offsets, "length", end if end <= len(wire) else None
    return list(range(start, len(wire))), "close", len(wire)


def split_sse(body):
    """([(lines, offset of the byte that ended the blank line)], lines left over).

    A line ends at CR or LF; the LF of a CR LF is swallowed, so a block that
    ends in CR LF is complete at the CR."""
    blocks, lines, start = [], [], 3 if body.startswith(b"\xef\xbb\xbf") else 0
    for i, byte in enumerate(body):
        if byte not in (10, 13):
            continue
        if not (byte == 10 and body[i - 1 : i] == b"\r"):
            if i > start:
                lines.append(body[start:i])
            elif lines:
                blocks.append((lines, i))
                lines = []
        start = i + 1
    return blocks, [*lines, body[start:]]


def parse_block(lines):
    """(event name, data) of one SSE block; a comment is a line with an empty field name."""
    fields = [line.partition(b":") for line in lines]
    values = [(name, value.removeprefix(b" ")) for name, _, value in fields]
    names = [value for name, value in values if name == b"event"]
    return (names or [b""])[-1], b"\n".join(value for name, value in values if name == b"data")


def decode(data):
    try:
        return json.loads(data.decode())
    except ValueError:  # UnicodeDecodeError is one
        return None


def dig(obj, *path):
    for key in path:
        obj = obj.get(key) if isinstance(obj, dict) else None
    return obj


def is_error(obj):
    error = dig(obj, "error")
    return dig(obj, "object") == "error" or not (error is None or error is False or error == "")


def has_text(choices, *fields):
    """Whether a chat delta has one of the fields, or a completion its text (never reasoning)."""
    texts = [dig(choice, "delta", field) for choice in choices for field in fields]
    return any(texts) or "content" in fields and any(dig(choice, "text") for choice in choices)


class Stream:
    """What the data events of one body say, and when those that count were complete."""

    def __init__(self, body, stamps):
        self.bearing = []  # (index, stamp, tokens or None) of each token-bearing event
        self.answer_ns = self.choices_ns = self.done_ns = self.finish = self.usage = None
        self.parse_clean, self.shaped, self.reasoned = True, False, False
        blocks, leftover = split_sse(body)
        bare = [line for lines, _ in blocks for line in lines] + leftover + [body]
        self.error = any(is_error(decode(line)) for line in bare if line.lstrip()[:1] == b"{")
        self.events = 0
        for lines, end in blocks:
            name, data = parse_block(lines)
            self.error |= name == b"error"
            if data.strip():
                self.take(self.events, data.strip(), stamps[end])
                self.events += 1

    def take(self, index, data, stamp):
        if data == b"[DONE]":
            self.done_ns = self.done_ns or stamp
            return
        obj = decode(data)
        self.parse_clean &= obj is not None
        self.error |= is_error(obj)
        self.shaped |= isinstance(dig(obj, "choices"), list)
        choices = dig(obj, "choices") or []
        for choice in choices:
            self.finish = dig(choice, "finish_reason") or self.finish
            self.error |= dig(choice, "finish_reason") in ("error", "abort")
        self.reasoned |= has_text(choices, *REASONING)
        if has_text(choices, "content"):
            self.answer_ns = self.answer_ns or stamp
        if choices:
            self.choices_ns = self.choices_ns or stamp

        total, before = dig(obj, "usage", "completion_tokens"), dig(self.usage, "completion_tokens")
        tokens = 0 if total is None else total - (before or 0)
        if has_text(choices, *DELTA_TEXT) or (choices and before is not None and tokens > 0):
            # Text beside "0 tokens" is text that the server did not count.
            self.bearing.append((index, stamp, tokens if tokens > 0 else None))
        if total is not None:
            self.usage = obj["usage"]


def outcome(status, ended, body, stream, wanted):
    """First match wins, in the order of the outcome table."""
    if status is None:
        return "reset" if ended == "reset" else "empty"
    if not 200 <= status < 300:
        return f"http_{status if status in (401, 403, 404, 429) else f'{status // 100}xx'}"
    if stream.error:
        return "in_band_error"
    if stream.bearing and (stream.finish or stream.done_ns) and stream.parse_clean:
        n = dig(stream.usage, "completion_tokens")
        return "short_output" if n and n < wanted else "ok"
    if ended == "reset":
        return "reset"
    if not stream.parse_clean:
        return "parse"
    sse = stream.shaped if stream.events else body.lstrip().startswith((b"data:", b"event:", b":"))
    if body.strip() and not sse:
        return "bad_response"
    return "truncated" if stream.bearing else "empty"


def expect(path):
    """The object for one capture; None if it is no completion request."""
    meta, *reads = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
    head, _, request = base64.b64decode(meta["request_b64"]).partition(b"\r\n\r\n")
    method, target = head.decode().split(" ")[:2]
    api = next((APIS[end] for end in APIS if target.endswith(end)), None)
    if method != "POST" or api is None:
        return None
    assert api != "sglang-generate", "not judged here yet"
    request = decode(request)
    asked = dig(request, "max_tokens") or dig(request, "max_completion_tokens")
    ignore_eos = dig(request, "ignore_eos") is True

    reads = [(read["t_ns"], base64.b64decode(read["b64"])) for read in reads]
    wire = b"".join(data for _, data in reads)
    came = [t_ns for t_ns, data in reads for _ in data]  # for each byte, when its read returned
    status, headers, start = parse_head(wire)
    assert "content-encoding" not in headers, "a compressed body is not read here"
    offsets, framing, end = read_body(wire, status, headers, start)
    body = bytes(wire[i] for i in offsets)
    stream = Stream(body, [came[i] for i in offsets])
    ended = "cut" if end is None else "complete"
    ended = next((who for who in ("client", "reset") if who in meta["end"]), ended)
    closed = stream.done_ns
    if closed is None and ended != "client" and wire:
        closed = came[(end or len(wire)) - 1]

    sent, usage = meta["t_sent_ns"], stream.usage
    # LiteLLM writes 0 where it was not asked for usage: beside tokens that came, that is no count.
    n = dig(usage, "completion_tokens") or (None if stream.bearing else dig(usage, "completion_tokens"))
    reasoning = dig(usage, "completion_tokens_details", "reasoning_tokens")
    first_event, first, n1 = stream.bearing[0] if stream.bearing else (None, None, None)
    last_event, last, _ = stream.bearing[-1] if stream.bearing else (None, None, None)
    counts = [tokens for _, _, tokens in stream.bearing]
    basis = ("chunk" if None in counts else "token") if counts else None
    if counts:
        # A count at the first event already contains hidden reasoning.
        n1 = n1 or 1 + (0 if stream.reasoned else reasoning or 0)
    judged = outcome(status, ended, body, stream, asked if ignore_eos and asked else 0)
    # Where all came in one read there is no interval to divide.
    sampled = n is not None and counts and n - n1 >= 1 and last > first
    return {
        "server": path.parent.name, "name": path.name.removesuffix(".jsonl.gz"), "api": api,
        "status": status, "body_bytes": len(body), "framing": framing, "ended": ended,
        "clean": ended != "cut", "outcome": judged, "asked": asked, "ignore_eos": ignore_eos,
        "events": stream.events, "token_events": len(stream.bearing),
        "first_event": first_event, "last_event": last_event,
        "sent_ns": sent, "headers_ns": came[start - 1] if status else None,
        "first_choices_ns": stream.choices_ns, "first_ns": first,
        "first_answer_ns": stream.answer_ns, "last_ns": last, "closed_ns": closed,
        "n": n, "n1": n1, "prompt_tokens": dig(usage, "prompt_tokens"),
        "cached_tokens": dig(usage, "prompt_tokens_details", "cached_tokens"),
        "reasoning_tokens": reasoning, "basis": basis,
        "token_counts": counts if basis == "token" else None,
        "finish_reason": stream.finish, "done": stream.done_ns is not None,
        "ttft_ns": first - sent if counts else None,
        "tpot_ns": (last - first) / (n - n1) if sampled else None,
        "e2el_ns": last - sent if counts else None,
    }  # fmt: skip


def main():
    found = filter(None, map(expect, sorted(HERE.glob("*/*.jsonl.gz"))))
    text = "[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n"
    target = HERE / "expected.json"
    if "--check" not in sys.argv[1:]:
        target.write_text(text)
    elif not target.exists() or target.read_text() != text:
        sys.exit("expected.json differs from what expected.py makes of the captures")


if __name__ == "__main__":
    main()
