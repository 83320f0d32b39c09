"""A llama.cpp server with a tiny model of random weights: `python llama_server.py MODEL_FILE`.

It prints its address, and ends with its standard input. Quotation marks are likely, which end texts,
and so are two words. Others than ASCII are not: the server reads no invalid UTF-8 as JSON.
"""

import sys

import gguf
import numpy as np
import xllamacpp

WIDTH, WIDE, LAYERS = 32, 64, 2
WORDS = ("ALLOW", "WARN", "BLOCK", "safe", "unsafe")
PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}  # in GPT-2's names of bytes


def write_tokenizer(model: gguf.GGUFWriter) -> list[str]:
    """Write a tokenizer of single bytes and the words; return its tokens."""
    others = iter(range(256, 512))
    tokens = [chr(byte if byte in PRINTABLE else next(others)) for byte in range(256)]
    begun = [word[:end] for word in WORDS for end in range(2, len(word) + 1)]
    tokens += dict.fromkeys(["<s>", "</s>", *begun])
    model.add_tokenizer_model("gpt2")
    model.add_tokenizer_pre("gpt-2")
    model.add_token_list(tokens)
    model.add_token_types([3 if token in ("<s>", "</s>") else 1 for token in tokens])
    model.add_token_merges([f"{each[:-1]} {each[-1]}" for each in begun])
    model.add_bos_token_id(tokens.index("<s>"))
    model.add_eos_token_id(tokens.index("</s>"))
    model.add_chat_template("{% for each in messages %}{{ each.content }}\n{% endfor %}")
    return tokens


def write_weights(model: gguf.GGUFWriter, tokens: list[str]) -> None:
    random = np.random.default_rng(7)
    shapes = dict.fromkeys(("attn_q", "attn_k", "attn_v", "attn_output"), (WIDTH, WIDTH))
    shapes |= {"ffn_gate": (WIDE, WIDTH), "ffn_up": (WIDE, WIDTH), "ffn_down": (WIDTH, WIDE)}
    weights = {"output_norm": np.ones(WIDTH)}
    for layer in (f"blk.{number}" for number in range(LAYERS)):
        weights |= {f"{layer}.{name}": random.normal(0, 0.05, of) for name, of in shapes.items()}
        weights |= {f"{layer}.{part}_norm": np.ones(WIDTH) for part in ("attn", "ffn")}
    embeddings, output = random.normal(0, 0.5, (2, len(tokens), WIDTH))
    embeddings[:, 0], output[:, 0] = 4, 0  # the first number is the same for every token
    output[:32, 0] = output[127:256, 0] = -5
    output[[tokens.index(token) for token in ('"', "safe", "unsafe")], 0] = 1.2
    for name, each in (weights | {"token_embd": embeddings, "output": output}).items():
        model.add_tensor(f"{name}.weight", each.astype(np.float32))


def write_model(path: str) -> None:
    model = gguf.GGUFWriter(path, "llama")
    model.add_context_length(16_384)
    model.add_embedding_length(WIDTH)
    model.add_block_count(LAYERS)
    model.add_feed_forward_length(WIDE)
    model.add_head_count(4)
    model.add_layer_norm_rms_eps(1e-5)
    write_weights(model, write_tokenizer(model))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


def main(path: str) -> None:
    write_model(path)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = path
    parameters.n_ctx, parameters.n_parallel, parameters.n_gpu_layers = 32_768, 2, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
