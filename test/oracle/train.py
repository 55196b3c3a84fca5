#!/usr/bin/env python3
"""AdamW steps of tiny models by PyTorch: losses, norms of gradients, and what becomes of the weights.

usage: train.py FOLDER    needs torch 2 and numpy; runs on a CPU

FOLDER is internal/train/testdata. It gets torch.json with the models, batches, settings and figures, and for each case torch-NAME.f32: all weights
behind the last step, in the order of the case's tensors, little-endian. internal/train/torch_test.go holds the trainer against them.

Figures are those of float64; "float32" says how far PyTorch's own float32 is from them. Tensors have the names and shapes of GGUF files, so rows of a
llama's queries and keys pair the elements 2i and 2i+1 of a head (as its authors' code has them), those of qwen3 the elements i and i+D/2 (as
transformers has them).
"""
import json, os, platform, sys, zlib
import numpy as np
import torch
import torch.nn.functional as F

VOCAB = 71
SIZES = {"vocab": VOCAB, "hidden": 32, "ffn": 40, "layers": 2, "heads": 4, "kv_heads": 2}
LLAMA = {"architecture": "llama", **SIZES, "head": 8, "eps": 1e-5, "base": 500.0, "tied": False}
QWEN3 = {"architecture": "qwen3", **SIZES, "head": 12, "eps": 1e-6, "base": 100.0, "tied": True}

# The first two have the rate at which the project promises to be PyTorch's. The third goes so far that the order of decay and step is seen beside the
# rounding of the weights; it is clipped in some steps only. Its eps is above what rounding makes of gradients near zero, which would steer the weights.
CASES = [
    {"name": "llama", "model": LLAMA, "steps": 20, "rate": 1e-4, "eps": 1e-6, "decay": 0.1, "clip": 1.0, "schedule": "constant", "warmup": 0, "floor": 0.0},
    {"name": "qwen3", "model": QWEN3, "steps": 20, "rate": 1e-4, "eps": 1e-6, "decay": 0.1, "clip": 0.0, "schedule": "cosine", "warmup": 5, "floor": 0.1},
    {"name": "llama-fast", "model": LLAMA, "steps": 8, "rate": 1e-2, "eps": 1e-4, "decay": 1.0, "clip": 2.0, "schedule": "constant", "warmup": 0, "floor": 0.0},
]
BETAS = (0.9, 0.95)
LEAVES, LEAF = 4, 70  # of a batch, tokens of each: more than a block of 64 keys


def mixed(n):
    """Integers as good as random ones, of integers: Wellons's lowbias32."""
    n = np.asarray(n, dtype=np.uint64) & 0xFFFFFFFF
    n ^= n >> 16
    n = n * 0x7FEB352D & 0xFFFFFFFF
    n ^= n >> 15
    n = n * 0x846CA68B & 0xFFFFFFFF
    return n ^ n >> 16


def shapes(m):
    """Names and shapes of a model's tensors; vectors have one dimension."""
    q, kv = m["heads"] * m["head"], m["kv_heads"] * m["head"]
    yield "token_embd.weight", [m["vocab"], m["hidden"]]
    for n in range(m["layers"]):
        b = f"blk.{n}."
        yield b + "attn_norm.weight", [m["hidden"]]
        yield b + "attn_q.weight", [q, m["hidden"]]
        yield b + "attn_k.weight", [kv, m["hidden"]]
        yield b + "attn_v.weight", [kv, m["hidden"]]
        if m["architecture"] == "qwen3":
            yield b + "attn_q_norm.weight", [m["head"]]
            yield b + "attn_k_norm.weight", [m["head"]]
        yield b + "attn_output.weight", [m["hidden"], q]
        yield b + "ffn_norm.weight", [m["hidden"]]
        yield b + "ffn_gate.weight", [m["ffn"], m["hidden"]]
        yield b + "ffn_up.weight", [m["ffn"], m["hidden"]]
        yield b + "ffn_down.weight", [m["hidden"], m["ffn"]]
    yield "output_norm.weight", [m["hidden"]]
    if not m["tied"]:
        yield "output.weight", [m["vocab"], m["hidden"]]


def begin(number, shape):
    """The values of tensor number at the beginning: between -2 and 2 over the root of its columns, of a vector between 0.75 and 1.25."""
    u = mixed(np.arange(np.prod(shape)) + (number << 16)) / 2.0**31 - 1
    x = 1 + u / 4 if len(shape) == 1 else u * 2 / np.sqrt(shape[1])
    return x.astype("<f4").reshape(shape)


def batches(steps):
    """Batches of leaves: lengths of sequences, of which the rest of the leaf is padding, ids, and which tokens are to be predicted."""
    drawn = 0

    def draw(n):
        nonlocal drawn
        drawn += 1
        return int(mixed(drawn + 0x51000000)) % n

    for step in range(steps):
        counts = 75 if step % 3 < 2 else 6  # of a hundred: where few count, gradients are large
        batch = []
        for leaf in range(LEAVES):
            lengths = [LEAF] if leaf == step % LEAVES else []
            while sum(lengths) < LEAF - 6:
                lengths.append(min(1 + draw(30), LEAF - 3 - sum(lengths)))
            ids = [draw(VOCAB) for _ in range(LEAF)]
            batch.append({"lengths": lengths, "ids": ids, "loss": "".join("01"[draw(100) < counts] for _ in range(LEAF))})
        yield batch


def rotate(x, pos, m):
    """x of [heads, rows, head] turned by the rows' positions."""
    half = m["head"] // 2
    angle = pos.to(x.dtype)[:, None] * m["base"] ** (-torch.arange(half, dtype=x.dtype) / half)
    if m["architecture"] == "llama":
        turned = torch.view_as_complex(x.unflatten(-1, (half, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
        return torch.view_as_real(turned).flatten(-2)
    cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def logits(w, m, ids, pos, seq):
    """Logits of the rows of a leaf: they see those of their own sequence up to themselves."""
    sees = (seq[:, None] == seq[None, :]) & (pos[:, None] >= pos[None, :])
    norm = lambda x, name: F.rms_norm(x, (x.shape[-1],), w[name + ".weight"], m["eps"])
    split = lambda x: x.unflatten(-1, (-1, m["head"])).transpose(0, 1)
    x = F.embedding(ids, w["token_embd.weight"])
    for n in range(m["layers"]):
        b = f"blk.{n}."
        h = norm(x, b + "attn_norm")
        q, k, v = (split(F.linear(h, w[f"{b}attn_{name}.weight"])) for name in "qkv")
        if m["architecture"] == "qwen3":
            q, k = norm(q, b + "attn_q_norm"), norm(k, b + "attn_k_norm")
        a = F.scaled_dot_product_attention(rotate(q, pos, m)[None], rotate(k, pos, m)[None], v[None], attn_mask=sees, enable_gqa=True)[0]
        x = x + F.linear(a.transpose(0, 1).flatten(1), w[b + "attn_output.weight"])
        h = norm(x, b + "ffn_norm")
        x = x + F.linear(F.silu(F.linear(h, w[b + "ffn_gate.weight"])) * F.linear(h, w[b + "ffn_up.weight"]), w[b + "ffn_down.weight"])
    return F.linear(norm(x, "output_norm"), w["token_embd.weight" if m["tied"] else "output.weight"])


def loss_of(w, m, batch):
    """The mean loss of the tokens of a batch that count, and how many these are."""
    total, count = 0, 0
    for leaf in batch:
        lengths = leaf["lengths"] + [LEAF - sum(leaf["lengths"])]
        seq = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])
        pos = torch.cat([torch.arange(n) for n in lengths])
        ids = torch.tensor(leaf["ids"])
        counts = torch.tensor([c == "1" for c in leaf["loss"]])
        counts = counts[1:] & (seq[1:] == seq[:-1]) & (seq[1:] < len(leaf["lengths"]))
        target = torch.where(counts, ids[1:], -100)
        total = total + F.cross_entropy(logits(w, m, ids, pos, seq)[:-1], target, ignore_index=-100, reduction="sum")
        count += int(counts.sum())
    return total / count, count


def schedule(optimizer, case):
    """The rate by step, of torch's own schedules."""
    s = torch.optim.lr_scheduler
    if case["schedule"] == "constant":
        return s.ConstantLR(optimizer, factor=1)
    up = s.LinearLR(optimizer, start_factor=1 / case["warmup"], total_iters=case["warmup"] - 1)
    down = s.CosineAnnealingLR(optimizer, case["steps"] - case["warmup"], eta_min=case["floor"] * case["rate"])
    return s.SequentialLR(optimizer, [up, down], [case["warmup"]])


def train(case, data, dtype):
    """The figures of a case by step, and its weights behind the last."""
    m = case["model"]
    w = {name: torch.nn.Parameter(torch.tensor(begin(i, shape)).to(dtype)) for i, (name, shape) in enumerate(shapes(m))}
    matrices, vectors = [p for p in w.values() if p.ndim > 1], [p for p in w.values() if p.ndim == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": case["decay"]}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=case["rate"], betas=BETAS, eps=case["eps"], foreach=False)
    rate = schedule(optimizer, case)
    figures = []
    for batch in data[: case["steps"]]:
        optimizer.zero_grad()
        loss, count = loss_of(w, m, batch)
        loss.backward()
        each = [float(p.grad.norm()) for p in w.values()]
        figures.append({"loss": loss.item(), "targets": count, "rate": optimizer.param_groups[0]["lr"],
                        "norm": float(torch.tensor(each, dtype=torch.float64).norm()), "norms": [float(f"{x:.9g}") for x in each]})
        if case["clip"]:
            torch.nn.utils.clip_grad_norm_(w.values(), case["clip"])
        optimizer.step()
        rate.step()
    return figures, {name: p.detach().double().numpy() for name, p in w.items()}


def main(folder):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    data = list(batches(max(c["steps"] for c in CASES)))
    versions = {"torch": torch.__version__, "python": platform.python_version(), "numpy": np.__version__}
    out = {"made_by": "test/oracle/train.py", **versions, "betas": BETAS, "cases": []}
    for case in CASES:
        figures, w = train(case, data, torch.float64)
        singles, s = train(case, data, torch.float32)
        first = {name: begin(i, shape) for i, (name, shape) in enumerate(shapes(case["model"]))}
        out["cases"].append(case | {
            "tensors": [{"name": n, "shape": shape} for n, shape in shapes(case["model"])],
            "begin_crc32": zlib.crc32(b"".join(x.tobytes() for x in first.values())),
            "float32": {
                "loss": max(abs(a["loss"] - b["loss"]) for a, b in zip(figures, singles)),
                "value": max(float(abs(s[n] - w[n]).max()) for n in w),
                "change": max(float(np.linalg.norm(s[n] - w[n]) / np.linalg.norm(w[n] - first[n])) for n in w),
            },
            "figures": figures,
        })
        with open(os.path.join(folder, f"torch-{case['name']}.f32"), "wb") as f:
            f.write(b"".join(w[n].astype("<f4").tobytes() for n in w))
    out["batches"] = data
    with open(os.path.join(folder, "torch.json"), "w") as f:
        f.write(json.dumps(out, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
