"""Small models of many families, of sizes drawn by chance, there and back: from torch, from a file and to a file."""

import functools
import io
import random
import warnings

import pytest
import torch

import export_kinds
import fastexport
import pt2_torch
from torch_programs import assert_same_programs

transformers = pytest.importorskip("transformers")

BATCH = torch.export.Dim.DYNAMIC


pytestmark = [pytest.mark.models, pytest.mark.usefixtures("quiet")]


class Sizes:
    """Sizes for a model: the same at each run, others for another name."""

    def __init__(self, name):
        chance = random.Random(name)
        self.heads = chance.choice([1, 2, 4])
        self.width = self.heads * chance.choice([4, 6])
        self.inner = chance.randrange(7, 30)
        self.layers = chance.randrange(1, 3)
        self.words = chance.randrange(32, 64)

    def ids(self, *shape):
        return torch.arange(torch.Size(shape).numel()).reshape(shape) % self.words


def bert(s):
    config = transformers.BertConfig(
        vocab_size=s.words,
        hidden_size=s.width,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        intermediate_size=s.inner,
        max_position_embeddings=16,
    )
    inputs = {"input_ids": s.ids(2, 5), "attention_mask": torch.ones(2, 5, dtype=torch.int64)}
    return transformers.BertForSequenceClassification(config), inputs


def gpt2(s):
    config = transformers.GPT2Config(
        vocab_size=s.words, n_embd=s.width, n_layer=s.layers, n_head=s.heads, n_positions=16, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": s.ids(2, 5)}


def t5(s):
    config = transformers.T5Config(
        vocab_size=s.words,
        d_model=s.width,
        d_kv=4,
        d_ff=s.inner,
        num_layers=s.layers,
        num_decoder_layers=1,
        num_heads=s.heads,
        use_cache=False,
    )
    return transformers.T5ForConditionalGeneration(config), {
        "input_ids": s.ids(2, 5),
        "decoder_input_ids": s.ids(2, 3),
    }


def vit(s):
    config = transformers.ViTConfig(
        hidden_size=s.width,
        num_hidden_layers=s.layers,
        num_attention_heads=s.heads,
        intermediate_size=s.inner,
        image_size=8,
        patch_size=4,
    )
    return transformers.ViTForImageClassification(config), {"pixel_values": export_kinds.values(2, 3, 8, 8)}


def whisper(s):
    config = transformers.WhisperConfig(
        vocab_size=s.words,
        d_model=s.width,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=s.heads,
        decoder_attention_heads=s.heads,
        encoder_ffn_dim=s.inner,
        decoder_ffn_dim=s.inner,
        num_mel_bins=4,
        max_source_positions=6,
        max_target_positions=8,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    inputs = {"input_features": export_kinds.values(2, 4, 12), "decoder_input_ids": s.ids(2, 3)}
    return transformers.WhisperForConditionalGeneration(config), inputs


def mamba(s):
    config = transformers.MambaConfig(
        vocab_size=s.words,
        hidden_size=s.width,
        state_size=4,
        num_hidden_layers=1,
        conv_kernel=2,
        time_step_rank=2,
        use_cache=False,
    )
    return transformers.MambaForCausalLM(config), {"input_ids": s.ids(2, 3)}


def mixtral(s):
    config = transformers.MixtralConfig(
        vocab_size=s.words,
        hidden_size=16,
        intermediate_size=s.inner,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=16,
        use_cache=False,
        num_local_experts=2,
        num_experts_per_tok=1,
    )
    return transformers.MixtralForCausalLM(config), {"input_ids": s.ids(2, 4)}


MODELS = {function.__name__: function for function in (bert, gpt2, t5, vit, whisper, mamba, mixtral)}
DYNAMIC = {"bert", "vit"}  # of any number of rows

every_model = pytest.mark.parametrize("name", MODELS)


@functools.cache
def exported(name):
    torch.manual_seed(0)
    model, inputs = MODELS[name](Sizes(name))
    shapes = {key: {0: BATCH} for key in inputs} if name in DYNAMIC else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.export.export(model.eval(), (), inputs, dynamic_shapes=shapes)


def inputs_of(name):
    """The example inputs, with more rows where there may be."""
    args, kwargs = exported(name).example_inputs
    return args, {key: torch.cat([value, value]) if name in DYNAMIC else value for key, value in kwargs.items()}


@functools.cache
def results(name):
    return export_kinds.run(exported(name), inputs_of(name))


def assert_same_runs(program, name):
    export_kinds.assert_same_results(export_kinds.run(program, inputs_of(name)), results(name))


@every_model
def test_from_torch_and_back(name):
    program = exported(name)
    ep = fastexport.from_export(program)
    assert str(ep.graph) == str(program.graph)
    assert ep.verify() == []
    back = ep.to_torch()
    assert_same_programs(back, program)
    assert all(back.state_dict[key] is value for key, value in program.state_dict.items())
    assert_same_runs(back, name)


@every_model
def test_through_files(name):
    ours, theirs = io.BytesIO(), io.BytesIO()
    fastexport.save(exported(name), ours)
    torch.export.save(exported(name), theirs)
    want = pt2_torch.load(io.BytesIO(theirs.getvalue()))
    assert_same_programs(pt2_torch.load(io.BytesIO(ours.getvalue())), want)
    loaded = fastexport.load(ours.getvalue())
    assert not [fault for fault in loaded.verify(all=True) if fault.is_error]
    back = loaded.to_torch(example_inputs=True)
    assert_same_programs(back, want)
    assert_same_runs(back, name)


@every_model
def test_edited(name):
    ep = fastexport.from_export(exported(name))
    removed = ep.remove_unused_inputs()
    ep.eliminate_dead_code()
    ep.eliminate_getitems()
    swapped = [node for node in ep.graph.nodes if str(node.target) in ("aten.gelu.default", "aten.silu.default")]
    for node in swapped:
        node.target = torch.ops.aten.relu.default
        node.kwargs = {}
    program = ep.to_torch()
    program.validate()
    gone = {spec.target for spec in exported(name).graph_signature.input_specs if spec.arg.name in removed}
    assert gone.isdisjoint(program.state_dict)
    got = export_kinds.run(program, inputs_of(name))
    if not swapped:
        assert torch.equal(got[0], results(name)[0])
        return
    expected = fastexport.from_export(exported(name)).to_torch()
    for node in expected.graph.nodes:
        if str(node.target) in ("aten.gelu.default", "aten.silu.default"):
            node.target, node.kwargs = torch.ops.aten.relu.default, {}
    expected.graph_module.recompile()
    assert torch.equal(got[0], export_kinds.run(expected, inputs_of(name))[0])
    assert not torch.equal(got[0], results(name)[0])
