#!/usr/bin/env python3
"""Three small tokenizers of three families, and what is expected of them, without any code of ours.

`make.py` writes every family's expected.json with the `tokenizers` package for Python and jinja2, set up as
transformers sets it up; `make.py --check` fails when a file differs from what it would write. `make.py --train`
makes the tokenizers themselves anew. That is no part of the check: the texts they are trained on (LICENSE, docs/) change, and the
trainers of Unigram and WordPiece give another vocabulary each time.
"""

import json
import pathlib
import sys

import jinja2
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
FAMILIES = ["byte-level-bpe", "unigram", "wordpiece"]
# What splits words in the tokenizers of Qwen: a look-ahead, so that it needs more than a regular language.
SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"

AWKWARD = [
    "",
    " ",
    "a",
    "The quick brown fox jumps over the lazy dog.",
    "  leading and trailing   ",
    " " * 300,
    "\n" * 40 + "x" + "\t" * 17,
    "line\r\nline\rline\u2028line\u0085line",
    "don't we'll they've I'M it's O'Neill's",
    "12345678901234567890 3.14159 1,000,000",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466\U0001f3f4\U000e0067\U000e0062\U000e007f\u2764\ufe0f",
    "\u6771\u4eac\u90fd\u306f\u65e5\u672c\u306e\u9996\u90fd\u3067\u3059\u3002\u4eca\u65e5\u306f\uff0c\u4e16\u754c\uff01",
    "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u05e9\u05dc\u05d5\u05dd",
    "e\u0301 n\u0303 \u00e9 \u00f1 Z\u0351\u036b\u0343\u036a\u0302A\u0321LGO\u0338",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "NUL\u0000inside\u0001\u0007\u001b[0m",
    "\ufeffbom \u00a0nbsp\u3000wide \u200bzero\u00adsoft",
    "\ufb01ligature \u2460 \u00bd \uff21\uff22\uff23 \u212b",
    "fn main() {\n    let x: Vec<u8> = vec![0; 1 << 10]; // \u2260\n}\n",
    "<|im_start|>user\nhi<|im_end|>",
    "<s>[INST] hi [/INST]</s> <unk>",
    "[CLS] hi [MASK] [SEP]",
    "<|im_start",
    "https://example.org/a?b=c&d=%20#e {\"k\": [1, null, true]}",
    "a" * 150,
    "word " * 200,
    "\u2581under\u2581score\u2581",
    "\U0010ffff\ue000\ufffd",
]

CHATS = [
    [("user", "hi")],
    [("system", "You are terse."), ("user", "Count  to three.\n")],
    [("user", "first"), ("assistant", " one "), ("user", "second \U0001f600")],
    [("user", "<b>\"quoted\"</b> & 'it'")],
    [("user", "  \n padded \n ")],
]

# The program's own words, which every vocabulary of real size has as one token each.
WORDS = """about after again air animal answer back begin book boy call change city close country day different
door earth end example eye face family far father find food form friend good group grow hand head help home house
idea land large learn letter life light line list long main mother mountain move music name night number paper part
people place plant river school sea""".split()


def corpus():
    texts = [ROOT / "LICENSE", *sorted((ROOT / "docs").glob("*.md"))]
    lines = [line for path in texts for line in path.read_text(encoding="utf-8").splitlines()]
    # Each word behind each other one, so that no pair is frequent enough to become a token.
    return lines + [" ".join(WORDS[(start + step * at) % 64] for at in range(64)) for start in range(4) for step in range(1, 64, 2)]


def train_bpe():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1200, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def train_unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=True)
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first", split=True)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.UnigramTrainer(
        vocab_size=1200, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    # Bytes of what the vocabulary lacks, as Llama and Mistral have them: the trainer makes none.
    state = json.loads(tokenizer.to_str())
    pieces = state["model"]["vocab"]
    state["model"]["vocab"] = pieces[:3] + [[token, 0.0] for token in tokens[3:]] + pieces[3:]
    state["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken("[INST]", special=True), AddedToken("[/INST]", special=True)])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B:1", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def train_wordpiece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    # Left in as many published files have them: whoever counts has to switch them off.
    tokenizer.enable_truncation(max_length=128)
    tokenizer.enable_padding(length=128, pad_id=0, pad_token="[PAD]")
    return tokenizer


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    # 26 July 2024, the date that Llama 3's template falls back to, so that a count is the same on every day.
    made.globals["strftime_now"] = lambda form: {"%d %b %Y": "26 Jul 2024", "%Y-%m-%d": "2024-07-26"}[form]
    return made


def special(config):
    text = lambda value: value["content"] if isinstance(value, dict) else value
    return {name: text(value) for name, value in config.items() if name.endswith("_token") and value is not None}


def expected(family):
    folder = HERE / family
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    jinja = folder / "chat_template.jinja"
    source = jinja.read_text(encoding="utf-8") if jinja.exists() else config["chat_template"]
    if isinstance(source, list):
        source = next(entry["template"] for entry in source if entry["name"] == "default")
    template = environment().from_string(source)
    texts = []
    for text in AWKWARD:
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        texts.append({"text": text, "ids": plain, "with_special": len(tokenizer.encode(text).ids)})
    chats = []
    for chat in CHATS:
        messages = [{"role": role, "content": content} for role, content in chat]
        try:
            rendered = template.render(messages=messages, tools=None, documents=None, add_generation_prompt=True, **special(config))
            count = len(tokenizer.encode(rendered, add_special_tokens=False).ids)
        except jinja2.exceptions.TemplateError as error:
            rendered, count = None, None
        chats.append({"messages": messages, "rendered": rendered, "count": count})
    return json.dumps({"texts": texts, "chats": chats}, ensure_ascii=True, indent=None, separators=(",", ":")).replace('{"text"', '\n{"text"').replace('{"messages"', '\n{"messages"') + "\n"


def main():
    if "--train" in sys.argv:
        for family, train in zip(FAMILIES, [train_bpe, train_unigram, train_wordpiece]):
            path = HERE / family / "tokenizer.json"
            path.write_text(json.dumps(json.loads(train().to_str()), ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    wrong = 0
    for family in FAMILIES:
        path = HERE / family / "expected.json"
        made = expected(family)
        if "--check" not in sys.argv:
            path.write_text(made, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != made:
            print(f"{path.relative_to(ROOT)} is not what make.py makes")
            wrong += 1
        else:
            print(f"{path.relative_to(ROOT)}: {len(AWKWARD)} texts and {len(CHATS)} chats as expected")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
