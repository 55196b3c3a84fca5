# Normal forms by Python's unicodedata, which is not the stream-safe form: python3 normal.py > normal.json
import json
import random
import unicodedata

rng = random.Random(17)
marks = "\u0300\u0301\u0302\u0307\u0308\u030a\u031b\u0323\u0327\u0328\u0330\u0331\u0338\u0345\u05b0\u05b4\u05bc\u064b\u0650\u0651\u0f71\u0f72\u0f74\u3099\u309a\u0344\u0340\u1dc0"
starters = "aeoAEOU\u00e9\u1ec7\u03b1\u1f71\u0931\u304b\u30cf\uff76\u212b\u212a\ufb01\u0958\u0f42\u2126\u00c5\u01d5"


def run(n):
    return "".join(rng.choice(marks) for _ in range(n))


texts = ["", "plain", "\u0301" * 31, "e" + "\u0301" * 30, "e" + "\u0301" * 31, "e" + "\u0301" * 60, "e" + "\u0301" * 200,
         "x" + "\u0323\u0301" * 40 + "y", "a" + "\u0301" * 40 + "\u0323" * 40, "o" + "\u0328" * 20 + "\u0304" * 20 + "\u031b",
         "\u1100\u1161\u11a8", "\u1100" + "\u1161" * 40, "\uac00\u11a8" + "\u0301" * 40, "\u1100\u1161" + "\u11a8" * 40, "\uffa1\uffc2\uffc2" * 20,
         "\uff8a\uff9f" * 20, "\u304b" + "\u3099" * 40, "\u0f40" + "\u0f73\u0f75\u0f81" * 12, "\u09c7\u09be" * 30, "a\u034f" + "\u0301" * 40 + "\u034fb",
         "\ufdfa" * 9, "\u1fb7" + "\u0345" * 35, "one e" + "\u0301" * 50 + " and cafe\u0301 and \ufb01, " + "\u1112\u1161\u11ab" + " " + "o\u0302\u0323" * 12]
for n in (31, 33, 45, 60, 90, 200):
    texts.append(rng.choice(starters) + run(n))
    texts.append("".join(rng.choice(starters) + run(rng.randrange(0, n // 2)) for _ in range(5)))
forms = ["NFC", "NFD", "NFKC", "NFKD"]
rows = [json.dumps({"text": t, **{f: unicodedata.normalize(f, t) for f in forms}}) for t in texts]
print("[\n" + ",\n".join(rows) + "\n]")
