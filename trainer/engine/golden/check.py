"""Loads what the engine wrote into PEFT and compares logits.

check.py FOLDER, where the engine's example `golden` has written adapter/, ours.safetensors (ids, logits)
and model.txt (the directory of the base). Prints the largest relative 2-norm of the difference; exit
status 1 when it is over 1e-4, or when the adapter changes nothing.
"""

import json
import sys
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

LIMIT = 1e-4


def main(folder: Path) -> int:
    source = (folder / "model.txt").read_text().strip()
    # The adapter names the layers of the whole model, which has an image part.
    has_images = hasattr(AutoConfig.from_pretrained(source), "vision_config")
    kind = AutoModelForImageTextToText if has_images else AutoModelForCausalLM
    base = kind.from_pretrained(source, dtype=torch.float32, attn_implementation="eager")
    ours = load_file(folder / "ours.safetensors")
    ids = ours["ids"].long()[None]
    with torch.no_grad():
        plain = base(input_ids=ids).logits[0]
        logits = PeftModel.from_pretrained(base, folder / "adapter").eval()(input_ids=ids).logits[0]
    distance = float((ours["logits"] - logits).norm() / logits.norm())
    moved = float((plain - logits).norm() / logits.norm())
    print(json.dumps({"difference": distance, "limit": LIMIT, "moved_by_adapter": moved}))
    return 0 if distance <= LIMIT < moved else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
