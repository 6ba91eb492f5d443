"""What each code of a finding means, and what to do about it: a page for each, shown by `fastexport explain`.

The pages of the documentation are made of the same table.
"""

from __future__ import annotations

from typing import NamedTuple


class Page(NamedTuple):
    """What is said of a code.

    Attributes:
        meaning: in a line.
        why: what follows from it, and why it is looked for.
        example: a message of such a finding.
        remedy: what to do.
        source: where the rule comes from.
    """

    meaning: str
    why: str
    example: str
    remedy: str
    source: str


_ZIP = "the ZIP format, APPNOTE.TXT of PKWARE"
_READER = "torch/export/pt2_archive/_package.py"
_CONSTANTS = "torch/export/pt2_archive/constants.py"
_SCHEMA = "torch/_export/serde/schema.py"
_SERIALIZE = "torch/_export/serde/serialize.py"
_VERIFIER = "torch/_export/verifier.py"
_EXPORT_AGAIN = "Export and save the program again with torch."
_FETCH = "Fetch the file again; if it was made by a tool other than torch.export.save, report it there."

EXPLANATIONS: dict[str, Page] = {
    "FX101": Page(
        "The zip archive itself is damaged or built to deceive.",
        "Its directory, the headers before the entries and the data don't agree: entries overlap, sizes differ, bytes "
        "belong to nobody, or there is more than one end. Different readers would see different files.",
        "this is not a zip archive: it has no end record",
        "Check that the file is a .pt2 file and was copied whole; then fetch it or save it again.",
        _ZIP,
    ),
    "FX102": Page(
        "The bytes of an entry are not those that were written: its checksum differs.",
        "The file was damaged after it was saved, or changed by hand. torch does not check the checksums (CRC-32), "
        "so it loads such a file and computes with whatever is there.",
        "data/weights/weight_0: the data has CRC baa7c284, the archive says 87162e58",
        "Fetch the file again, or save it again where it came from.",
        _ZIP,
    ),
    "FX103": Page(
        "A feature that is not supported: encryption, another compression, another byte order or dialect.",
        "torch.export.save stores entries, or deflates them, and writes little-endian numbers. The rules of a "
        "dialect that is not defined here can't be checked.",
        "models/model.json: the entry is encrypted",
        "Store the archive with entries stored or deflated; define a dialect of your own as a fastexport.Verifier.",
        _READER,
    ),
    "FX104": Page(
        "The file asks for more than the limits allow: entries, bytes, ratio of compression, depth.",
        "A small file can ask for any amount of memory, which is how services are brought down. What real programs "
        "need is far below the limits.",
        "models/model.json: 66346 bytes inflate to 67112708, more than the limit of 1 to 1000",
        "If the file can be trusted, raise the limit: fastexport.load(..., limits={...}); fastexport.LIMITS has the "
        "defaults.",
        "fastexport.LIMITS",
    ),
    "FX105": Page(
        "The system could not read or write the file; the message is the system's.",
        "Nothing is known of the file. `fastexport check` goes on with the others and exits with 2.",
        "No such file or directory",
        "See that the path is right, that it is a file, and that it may be read.",
        "the operating system",
    ),
    "FX110": Page(
        "Entries are not where a .pt2 file has them.",
        "There is no top folder, or more than one, or the entries of two layouts, or something other than documents "
        "below models/. Readers differ in what they take from such a file.",
        "models/readme.txt: what is below models/ is taken for a model, but this is no NAME.json",
        "Keep other files below extra/ (extra_files of save). " + _EXPORT_AGAIN,
        _CONSTANTS,
    ),
    "FX111": Page(
        "An entry that torch.export.load needs is missing.",
        "The file was cut short, or was not written by torch.export.save. Of a file with several models, this is "
        "also said of a model that it does not have.",
        "models/model.json: the entry is missing, and so is archive_format: this is a zip archive, but no .pt2 file",
        _EXPORT_AGAIN + " `fastexport extract FILE` lists the entries.",
        _READER,
    ),
    "FX112": Page(
        "Two entries have one name, or names that differ only in capitals.",
        "One reader takes the first, another the last, and a file system that ignores capitals mixes them up: what was "
        "checked need not be what is run.",
        "models/model.json: the name is there twice",
        _FETCH,
        _ZIP,
    ),
    "FX113": Page(
        "The name of an entry, or a path in a document, points outside the archive or holds odd characters.",
        "A name such as ../x writes outside the folder that an archive is unpacked to; characters that turn text "
        "round make a name look like another.",
        "data/weights/model_weights_config.json $.config['fc.weight'].path_name: '../x' is no safe name of a record",
        _FETCH,
        _ZIP,
    ),
    "FX114": Page(
        "A marker says that the file is of another format or version.",
        "The markers are archive_format, archive_version, .data/version, version and schema_version. torch refuses "
        "a file whose markers it does not know.",
        "archive_format: 'pt2' is expected, not 'pt3'",
        _EXPORT_AGAIN + " A file of a newer torch needs a newer fastexport.",
        _READER,
    ),
    "FX115": Page(
        "An entry that no reader of .pt2 files asks for, or can use.",
        "It does no harm, but it is carried along in every copy of the file.",
        "data/foo/bar: unknown entry",
        "Leave it out, or keep it below extra/ (extra_files of save), as text in UTF-8.",
        _CONSTANTS,
    ),
    "FX201": Page(
        "A document is not JSON: syntax, encoding, a key that occurs twice, or text after its end.",
        "Of a key that occurs twice, readers take different values.",
        "models/model.json $: not JSON: the text is empty, at byte 0",
        _FETCH,
        "RFC 8259",
    ),
    "FX202": Page(
        "A document is nested deeper than any real program.",
        "Depth is what makes parsers run out of stack: torch's ends in a RecursionError.",
        "models/model.json $.zzz[0][0][0][0][0][0][0][0][0][0][0][0][0][0]: JSON is nested deeper than 512 levels "
        "(limit json_depth)",
        "If the file can be trusted, raise the limit json_depth of fastexport.load.",
        "fastexport.LIMITS",
    ),
    "FX203": Page(
        "A value is of another type than torch's schema says.",
        "torch would fail on it, or take it for something else.",
        "models/model.json $.opset_version.aten: an integer is expected, not a string",
        _EXPORT_AGAIN,
        _SCHEMA,
    ),
    "FX204": Page(
        "A number does not fit its type: integers have 64 bits, floats are finite.",
        "Sizes, strides and constants of operators are 64-bit integers in torch; a greater one overflows there.",
        "models/model.json $.range_constraints.s77.max_val: 1180591620717411303424 does not fit 64 bits",
        _EXPORT_AGAIN,
        _SCHEMA,
    ),
    "FX205": Page(
        "A field that torch's schema demands is missing.",
        "torch could not read the document.",
        "models/model.json $.graph_module: ExportedProgram has no 'graph_module'",
        _EXPORT_AGAIN,
        _SCHEMA,
    ),
    "FX206": Page(
        "A union must have exactly one key, and one that the schema knows.",
        "An argument is one of a tensor, a number, a list and so on; the key tells which.",
        "models/model.json $.graph_module.graph.nodes[0].inputs[0].arg: Argument has one key, here are 2",
        _EXPORT_AGAIN + " A kind of argument that a newer torch writes needs a newer fastexport.",
        _SCHEMA,
    ),
    "FX207": Page(
        "A number or name stands for nothing: an unknown dtype, layout, kind of argument or device.",
        "The schema stores them as numbers, whose meaning is fixed.",
        "data/weights/model_weights_config.json $.config['fc.weight'].tensor_meta.dtype: 99 is no ScalarType",
        _EXPORT_AGAIN,
        _SCHEMA,
    ),
    "FX208": Page(
        "A field that the schema does not know.",
        "It is kept when the program is saved; torch ignores it.",
        "models/model.json $.zzz: unknown key zzz of ExportedProgram",
        "Nothing, if the file is of a newer torch; else look what wrote the field.",
        _SCHEMA,
    ),
    "FX301": Page(
        "The graph is not well formed: a name is used before it is defined, defined twice, or has no value.",
        "A graph is a list of nodes in the order in which they run; each uses only what stands before it.",
        "models/model.json $.graph_module.graph.nodes[0].inputs[0] node linear: 'p' is used here, but nothing before "
        "this place in the graph defines it",
        "If a pass of your own made the graph, run lint after it; Graph.sort_topologically mends a wrong order.",
        "torch/fx/graph.py, Graph.lint",
    ),
    "FX302": Page(
        "A name is no Python identifier, or one that can't be used.",
        "torch writes names of inputs into Python code and runs it, so a name that is code is an attack.",
        "models/model.json $.graph_module.graph.nodes[0].inputs[1].arg.as_graph.name node cond: a subgraph can't be "
        "called 'a.b': is not an identifier",
        "Rename the node or input; don't load the file with torch before you know where the name comes from.",
        "torch/fx/graph.py, the code generation",
    ),
    "FX303": Page(
        "A node calls something that no exported program calls.",
        "Operators are spelled torch.ops.NAMESPACE.NAME.OVERLOAD; besides, a few functions on symbolic numbers are "
        "known. torch looks a target up by its name, so one such as os.system is an attack.",
        "models/model.json $.graph_module.graph.nodes[1].target node relu: 'os.system' is no operator or function that "
        "an exported program may call; nothing is looked up or called by this name",
        "Don't load the file with torch. If a tool of yours wrote the target, spell the operator in full.",
        _SERIALIZE,
    ),
    "FX304": Page(
        "An operator that importing torch does not register: a custom one, a misspelled name, or one of PT2E.",
        "torch opens the file only where the operator is registered. Of a custom one nothing is known, neither "
        "arguments nor effects, so passes keep it where it is; those of quantized_decomposed, which quantization by "
        "PT2E puts in, are known here.",
        "models/model.json $.graph_module.graph.nodes[1].target node relu: unknown operator "
        "'torch.ops.aten.nosuch.default': its arguments can't be checked, and torch loads this program only where the "
        "operator is registered",
        "Import what registers it before torch.export.load: your own library, or "
        "torch.ao.quantization.fx._decomposed or torchao.quantization.pt2e. Where that is done, leave it: --ignore "
        "FX304. Else correct the name.",
        "the operators of torch 2.13",
    ),
    "FX305": Page(
        "What a document says of a value can't be: a negative size, more sizes than strides, or a range of nothing.",
        "Memory is computed from sizes and strides; wrong ones would read outside of it, and are errors. A range of a "
        "symbol that no size depends on does no harm, and is a warning: torch itself writes such for some loops, and "
        "drops them when it opens the file.",
        "models/model.json $.graph_module.graph.tensor_values.x.strides: 3 strides for 2 sizes",
        "Leave a range as it is, with --ignore FX305 where it disturbs. Of errors: e" + _EXPORT_AGAIN[1:],
        _SCHEMA,
    ),
    "FX306": Page(
        "A symbolic expression is not of the grammar, or could never be computed.",
        "torch evaluates these texts as Python, so anything else in their place is an attack.",
        "models/model.json $.graph_module.graph.tensor_values.x.sizes[0].as_expr.expr_str: unknown function __import__ "
        "(byte 0 of '__import__('os').mkdir('RAN_CODE')')",
        "Don't load the file with torch before you know where the text comes from. " + _EXPORT_AGAIN,
        _SERIALIZE,
    ),
    "FX307": Page(
        "A symbolic expression is nested deeper than any real one.",
        "Deep expressions make parsers run out of stack.",
        "models/model.json $.graph_module.graph.tensor_values.x.sizes[0].as_expr.expr_str: nested too deep (byte 800 "
        "of 'Add(Add(Add(Add(Add(...",
        _FETCH,
        "fastexport.LIMITS",
    ),
    "FX308": Page(
        "A symbol occurs in a size, but no input and no node gives it a value.",
        "The program could not be run: nobody knows the size.",
        "models/model.json $.graph_module.graph.tensor_values.relu.sizes node relu: nothing before gives the symbol u5 "
        "a value; the node that did is gone, or stands behind this one",
        "If inputs were removed, remove the sizes that came from them too, or keep the inputs. " + _EXPORT_AGAIN,
        _VERIFIER,
    ),
    "FX309": Page(
        "An operator writes to one of its arguments, and the dialect allows functional operators only.",
        "Passes for functional programs would move or drop it.",
        "models/model.json $.graph_module.graph.nodes[1].target node relu: torch.ops.aten.relu_.default writes to its "
        "arguments, which no dialect but TRAINING allows; use its functional form",
        "Use the functional form of the operator, or run_decompositions() of torch, which makes a program functional.",
        _VERIFIER,
    ),
    "FX310": Page(
        "The arguments of a node don't fit the schema of its operator.",
        "torch would refuse the call when the program runs, or convert the argument silently.",
        "models/model.json $.graph_module.graph.nodes[0].inputs[0] node linear: torch.ops.aten.linear.default has no "
        "argument named 'zz'; remove it",
        "Give the arguments that the operator's schema names, of their types.",
        "the schemas of the operators of torch 2.13",
    ),
    "FX311": Page(
        "The check of a dialect of one's own refuses an operator or the program.",
        "The message is what its check_valid_op() or check_additional() said.",
        "node relu: the dialect EDGE does not allow torch.ops.aten.relu.default at 'relu': only linear operators run "
        "there",
        "See the class that defines the dialect, a subclass of fastexport.Verifier.",
        "fastexport.Verifier",
    ),
    "FX400": Page(
        "torch's own verifier refuses the program; the message is torch's.",
        "Said where only torch can tell: its verifier is another than the one that fastexport knows, or a dialect "
        "has its own.",
        "Operator '<built-in function print>' is not an allowed operator type: ...",
        "What the message of torch asks for.",
        _VERIFIER,
    ),
    "FX401": Page(
        "The signature does not agree with the graph or with the weights.",
        "Number, order or names of inputs and outputs differ, a weight is missing, or something that is not there is "
        "updated. The signature is what tells which placeholder is which weight.",
        "data/weights/model_weights_config.json $.config['fc.bias'].is_param: the signature calls this a parameter, so "
        "is_param must be true",
        "Change inputs and outputs with add_input, remove_input and the like, which keep the signature in step.",
        _VERIFIER,
    ),
    "FX402": Page(
        "The text that tells how arguments are nested is not one that torch writes, or has other leaves.",
        "torch imports modules that such a text names, so they are checked against a grammar.",
        "models/model.json $.graph_module.module_call_graph[0].signature.in_spec: the tree spec is no JSON: zzz",
        _EXPORT_AGAIN + " Classes of your own must be registered as pytree nodes before.",
        "torch/utils/_pytree.py",
    ),
    "FX403": Page(
        "The metadata of a node (stack trace, module stack ...) is not of the form that torch writes.",
        "torch takes most of these texts apart when it opens the file, and fails where it can't. Those are errors, and "
        "the file is refused. Others only mislead tools that group nodes by module, and are warnings.",
        "models/model.json $.graph_module.graph.nodes[0].metadata.nn_module_stack: an item of nn_module_stack is not "
        "KEY,PATH,TYPE: a,b",
        "If a pass of your own writes metadata, write it in torch's form; see the meta of a node that torch made. The "
        "form can't hold every path of a module, for one with a comma or a bracket: rename the module, then export.",
        _SERIALIZE,
    ),
    "FX404": Page(
        "A guard is not of a known form.",
        "torch runs guards as Python code at the first call of the program; fastexport only shows them.",
        "models/model.json $.guards_code[0]: a guard that is not of the known form: __import__('os').mkdir('x')",
        "Read the guard. If it does more than compare sizes of inputs, don't run the program.",
        "torch/export/_unlift.py",
    ),
    "FX405": Page(
        "A class that arguments or results nest in is none that torch knows by itself.",
        "Only the containers of Python and torch's own are registered when torch is imported. torch opens the file "
        "only where the class, say that of a model's outputs, is registered under this name. fastexport needs it only "
        "to build values.",
        "models/model.json $.graph_module.module_call_graph[0].signature.out_spec: the class "
        "'shop.Basket' is none that torch registers: torch loads this program only where the class is "
        "registered as a pytree node",
        "Import the library that registers it before torch.export.load, or call torch.export.register_dataclass or "
        "torch.utils._pytree.register_pytree_node; where that is done, leave it: --ignore FX405. Or export the program "
        "with tuples and dicts.",
        "torch/utils/_pytree.py",
    ),
    "FX501": Page(
        "A weight or constant can't be right: its sizes or dtype don't fit its bytes, or the graph.",
        "torch would read outside of the bytes, or the program would compute with something else than it was made for.",
        "data/weights/weight_0: 'fc.weight' needs 48 bytes, the record has 0",
        "Save the program again; a weight that replaces another must have its shape and dtype.",
        _READER,
    ),
    "FX502": Page(
        "A pickle asks for more than tensors.",
        "A pickle is a program: torch would run what it asks for when it loads the file, with all rights of the user. "
        "fastexport never does.",
        "data/sample_inputs/model.pt: sample inputs: the pickle calls os.mkdir",
        "Don't load the file with torch before you know where the pickle comes from. Example inputs that hold "
        "objects of your own can be left out: save the program without them.",
        "Lib/pickletools.py of CPython",
    ),
}
