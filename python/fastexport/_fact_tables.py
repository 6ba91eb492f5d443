"""What is known about functions, operators and methods, as tables; `_facts` is what reads them.

The flags are those of the C core. What is in no table is known by its schema, or by nobody.
"""

import builtins
import cmath
import math
import operator
import types

# fe_target_flag and fe_node_flag of csrc/core/ir.h
MUTATES = 1 << 0
RANDOM = 1 << 1
EFFECT = 1 << 2
NO_RESULT = 1 << 3
UNKNOWN = 1 << 4
GETITEM = 1 << 5
FX_IMPURE = 1 << 6
FX_RANDOM = 1 << 7
NOT_CALLABLE = 1 << 8
MISSING = 1 << 9
NOT_MODULE = 1 << 10
PER_NODE = 1 << 11
NODE_IMPURE = 1 << 1
NODE_FX_IMPURE = 1 << 2
NODE_RANDOM = 1 << 7

SAFE = MUTATES | RANDOM | EFFECT | NO_RESULT | UNKNOWN  # each keeps a node under the safe policy

# Effects that an operator's schema does not tell.
UNTOLD = {
    "aten::_cudnn_rnn_flatten_weight": MUTATES,
    "aten::_functional_assert_async": EFFECT,
    "aten::_functional_assert_scalar": EFFECT,
    "aten::_functional_sym_constrain_range": EFFECT,
    "aten::_functional_sym_constrain_range_for_size": EFFECT,
    "aten::from_file": EFFECT,
    "aten::to_here": EFFECT,
    "aten::wait": EFFECT,
    "fsdp::all_gather_copy_in": MUTATES,
    "inductor_prims::inductor_reserve_rng_state": RANDOM,
    "quantized::dropout": RANDOM,
}
# Operators that write running statistics, if given, when this argument is true (None: always).
STATISTICS = {
    "aten::_batch_norm_impl_index": "training",
    "aten::batch_norm": "training",
    "aten::batch_norm_gather_stats": None,
    "aten::batch_norm_gather_stats_with_counts": None,
    "aten::batch_norm_update_stats": None,
    "aten::cudnn_batch_norm": "training",
    "aten::instance_norm": "use_input_stats",
    "aten::miopen_batch_norm": "training",
    "aten::native_batch_norm": "training",
}
# What all operators of a namespace do, whatever their schemas say: talk to other processes or
# streams, profile, or run in an interpreter of their own.
NAMESPACES = {
    **dict.fromkeys(("c10d", "c10d_functional", "_c10d_functional", "symm_mem", "fsdp"), EFFECT),
    **dict.fromkeys(("_c10d_functional_autograd", "_dtensor", "streams", "profiler"), EFFECT),
    **dict.fromkeys(("cuda", "debug_mode_ops"), EFFECT),
    **dict.fromkeys(("prim", "static_runtime"), UNKNOWN),
}

# Higher-order operators that do what the subgraphs among their arguments do.
SUBGRAPH_OPERATORS = frozenset(
    """
    associative_scan autograd_function_apply cond flex_attention flex_attention_backward
    foreach_map hints_wrapper invoke_quant invoke_quant_packed invoke_subgraph local_map_hop
    map_impl run_const_graph scan strict_mode tag_activation_checkpoint while_loop
    while_loop_stack_output wrap wrap_activation_checkpoint wrap_with_autocast
    wrap_with_set_grad_enabled
    """.split()
)
# Those that do what the operator among their arguments does, but for these bits; and what else.
OPERATOR_OPERATORS = {
    "auto_functionalized": (MUTATES | NO_RESULT, 0),
    "auto_functionalized_v2": (MUTATES | NO_RESULT, 0),
    "graphsafe_run_with_rng_state": (RANDOM, RANDOM),
    "out_dtype": (0, 0),
    "run_and_save_rng_state": (RANDOM, RANDOM),
    "run_dtensor_rng_op": (RANDOM, RANDOM),
    "run_with_rng_state": (RANDOM, 0),
}
HIGHER_ORDER = {
    "_export_tracepoint": EFFECT,
    "call_torchbind": EFFECT,
    "invoke_leaf_function": EFFECT,
    "print": EFFECT,
    "register_hook": EFFECT,
    "triton_kernel_wrapper_functional": 0,
    "triton_kernel_wrapper_mutation": MUTATES,
    "with_effects": EFFECT,
}


def _table(owner: types.ModuleType, names: str, bits: int) -> dict[int, tuple[object, int]]:
    found = [getattr(owner, name) for name in names.split() if hasattr(owner, name)]
    return {id(function): (function, bits) for function in found}


# The standard library, by identity: looking up a target must not run its __eq__ or __hash__.
STANDARD: dict[int, tuple[object, int]] = {
    **_table(math, " ".join(name for name in vars(math) if name[0] != "_"), 0),
    **_table(cmath, " ".join(name for name in vars(cmath) if name[0] != "_"), 0),
    **_table(
        operator,
        """
        abs add and_ attrgetter concat contains countOf eq floordiv ge gt index indexOf inv
        invert is_ is_none is_not is_not_none itemgetter le length_hint lshift lt matmul
        methodcaller mod mul ne neg not_ or_ pos pow rshift sub truediv truth xor
        """,
        0,
    ),
    **_table(operator, "getitem", GETITEM),
    **_table(
        operator,
        """
        delitem iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub
        itruediv ixor setitem
        """,
        MUTATES,
    ),
    **_table(
        builtins,
        """
        abs all any ascii bin bool bytearray bytes callable chr complex dict dir divmod
        enumerate float format frozenset getattr hasattr hash hex id int isinstance issubclass
        iter len list max memoryview min object oct ord pow range repr reversed round set slice
        sorted str sum tuple type vars zip
        """,
        0,
    ),
    **_table(builtins, "delattr next setattr", MUTATES),
    **_table(builtins, "breakpoint exec exit input open print quit", EFFECT),
}

# Functions of torch that are written in Python or by hand. Parameters like out= are seen to apart.
TORCH_PURE = frozenset(
    """
    Size _sym_acos _sym_asin _sym_atan _sym_cos _sym_cosh _sym_log2 _sym_sin _sym_sinh _sym_sqrt
    _sym_tan _sym_tanh are_deterministic_algorithms_enabled as_tensor asarray atleast_1d
    atleast_2d atleast_3d block_diag broadcast_shapes broadcast_tensors cartesian_prod cdist
    chain_matmul device dsmm einsum finfo from_numpy frombuffer get_autocast_dtype
    get_default_device get_default_dtype get_rng_state hsmm iinfo initial_seed
    is_autocast_enabled is_grad_enabled is_inference_mode_enabled is_storage is_tensor lu
    meshgrid norm saddmm split spmm stft sym_float sym_int sym_ite sym_max sym_min sym_not
    sym_sqrt sym_sum tensor tensordot typename unique unique_consecutive unravel_index
    """.split()
)
TORCH_RANDOM = frozenset("lobpcg pca_lowrank svd_lowrank".split())
TORCH_EFFECT = frozenset(
    """
    _assert _check _check_index _check_is_size _check_not_implemented _check_tensor_all
    _check_tensor_all_with _check_type _check_value _check_with _constrain_as_size
    _enter_autocast _exit_autocast _set_grad_enabled autocast_decrement_nesting
    autocast_increment_nesting clear_autocast_cache init_num_threads manual_seed manual_seed_all
    save seed set_anomaly_enabled set_autocast_cache_enabled set_autocast_cpu_dtype
    set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype
    set_default_device set_default_dtype set_default_tensor_type set_deterministic_debug_mode
    set_float32_matmul_precision set_flush_denormal set_grad_enabled set_num_interop_threads
    set_num_threads set_printoptions set_rng_state set_warn_always use_deterministic_algorithms
    """.split()
)
# Of torch.utils._pytree and torch.fx._pytree, as in graphs of exported modules.
PYTREE = frozenset("tree_flatten tree_flatten_spec tree_leaves tree_unflatten".split())
# Public names of torch.nn.functional that are no functions on tensors.
NOT_FUNCTIONAL = frozenset(("assert_int_or_pair", "boolean_dispatch", "handle_torch_function"))
# What a true (or given) argument of these names does in a Python function of torch.
PARAMETERS = {
    "distance_function": UNKNOWN,
    "inplace": MUTATES,
    "max_norm": MUTATES,
    "out": MUTATES,
    "training": RANDOM,
}

# Methods of a Tensor that are bound to no operator of their name; the others go by the operator.
_TENSOR_PURE = frozenset(
    """
    as_subclass bfloat16 bool byte cdouble cfloat char const_data_ptr cpu cuda data_ptr
    dim_order double element_size float half index int ipu is_shared istft long lu mtia
    ndimension nelement new new_tensor norm numpy short split stft storage storage_type
    to_sparse_coo tolist type unflatten unique unique_consecutive untyped_storage xpu
    """.split()
)
# Methods that are bound to one, for when torch is not loaded: the usual ones.
_TENSOR_USUAL = frozenset(
    """
    abs acos add addmm all allclose amax amin any argmax argmin argsort asin atan baddbmm bmm
    broadcast_to ceil chunk clamp clone contiguous conj cos cosh cross cumprod cumsum detach
    diag diagonal diff dim div dot eq equal erf exp expand expand_as expm1 flatten flip floor
    floor_divide fmod gather ge gt index_add index_select is_complex is_contiguous
    is_floating_point isfinite isinf isnan item le log log10 log1p log2 log_softmax logical_and
    logical_not logical_or logsumexp lt masked_fill masked_scatter masked_select matmul max mean
    median min mm movedim mul mv narrow ne neg new_empty new_full new_ones new_zeros nonzero
    norm numel outer permute pow prod ravel reciprocal relu remainder repeat repeat_interleave
    reshape reshape_as roll round rsqrt scatter scatter_add select sigmoid sign sin sinh size
    softmax sort split split_with_sizes sqrt square squeeze std storage_offset stride sub sum
    swapaxes t tan tanh tile to topk trace transpose tril triu true_divide type_as unbind unfold
    unsqueeze var view view_as where
    """.split()
)
METHOD_RANDOM = frozenset(
    "bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal_ random_ uniform_".split()
)
METHOD_EFFECT = frozenset("backward register_hook register_post_accumulate_grad_hook reinforce retain_grad".split())
# Of list, dict, set and deque. Where a Tensor has a method of the name, that is meant: add, sort.
METHOD_MUTATES = frozenset(
    """
    append appendleft clear difference_update discard extend extendleft insert
    intersection_update pop popitem popleft record_stream remove reverse setdefault
    symmetric_difference_update update
    """.split()
)
_METHOD_PURE = frozenset(
    name
    for kind in (str, bytes, bool, int, float, complex, tuple, range, frozenset)
    for name in dir(kind)
    if not name.startswith("_")
) | frozenset(("get", "items", "keys", "values"))
_MAGIC_MUTATES = frozenset(
    """
    __delattr__ __delete__ __delitem__ __iadd__ __iand__ __iconcat__ __idiv__ __ifloordiv__
    __ilshift__ __imatmul__ __imod__ __imul__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__
    __ixor__ __next__ __set__ __setattr__ __setitem__ __setstate__
    """.split()
)
_MAGIC_PURE = frozenset(
    """
    __abs__ __add__ __and__ __array__ __bool__ __complex__ __contains__ __div__ __divmod__
    __eq__ __float__ __floordiv__ __format__ __ge__ __getitem__ __gt__ __hash__ __index__
    __int__ __invert__ __iter__ __le__ __len__ __long__ __lshift__ __lt__ __matmul__ __mod__
    __mul__ __ne__ __neg__ __nonzero__ __or__ __pos__ __pow__ __radd__ __rand__ __rdiv__
    __repr__ __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__
    __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __sizeof__ __str__
    __sub__ __truediv__ __xor__
    """.split()
)

MAGIC = {**dict.fromkeys(_MAGIC_PURE, 0), **dict.fromkeys(_MAGIC_MUTATES, MUTATES)}
METHODS_PURE = _TENSOR_PURE | _TENSOR_USUAL | _METHOD_PURE
METHOD_DOUBTFUL = frozenset(("resize", "resize_as"))  # old Python code that may write
