#!/usr/bin/env python3
"""Singular values by numpy.linalg.svd, and power laws by WeightWatcher, of models in safetensors.

usage: spectra.py OUT.json NAME=FOLDER...    needs numpy 2 and weightwatcher 0.7.5 (its WW_powerlaw.py alone)

Each FOLDER has model.safetensors. OUT gets, for each matrix under its name in GGUF, the singular values in float64 with nine
digits, and of their squares alpha, xmin and KS as WeightWatcher's fit has them. internal/spectra/oracle_test.go compares them.
"""
import importlib.util, json, os, re, sys, types
import numpy as np

NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}


def tensors(path):
    """Names and float64 values of a safetensors file."""
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        head = json.loads(f.read(size))
        for name, t in head.items():
            if name == "__metadata__":
                continue
            f.seek(8 + size + t["data_offsets"][0])
            raw = f.read(t["data_offsets"][1] - t["data_offsets"][0])
            if t["dtype"] == "BF16":
                x = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
            else:
                x = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[t["dtype"]])
            yield name, x.reshape(t["shape"]).astype(np.float64)


def gguf_name(name):
    m = re.fullmatch(r"model\.layers\.(\d+)\.(.*)\.weight", name)
    if m and m[2] in NAMES:
        return f"blk.{m[1]}.{NAMES[m[2]]}.weight"
    return {"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}.get(name)


def power_law(values):
    if "weightwatcher" not in sys.modules:  # the fit alone: the package wants torch
        package = types.ModuleType("weightwatcher")
        package.__path__ = importlib.util.find_spec("weightwatcher").submodule_search_locations
        sys.modules["weightwatcher"] = package
    from weightwatcher.WW_powerlaw import WWFit
    fit = WWFit(values**2)
    return {"alpha": float(fit.alpha), "xmin": float(fit.xmin), "ks": float(fit.D)}


def main(out, *models):
    result = {}
    for m in models:
        label, folder = m.split("=")
        result[label] = {}
        for name, x in sorted(tensors(os.path.join(folder, "model.safetensors"))):
            if x.ndim != 2 or not gguf_name(name):
                continue
            s = np.linalg.svd(x, compute_uv=False)
            result[label][gguf_name(name)] = {"shape": list(x.shape), "weightwatcher": power_law(s), "values": [float(f"{v:.9g}") for v in s]}
    with open(out, "w") as f:
        f.write(json.dumps(result, separators=(",", ":")).replace('},"', '},\n"') + "\n")


main(*sys.argv[1:])
