"""What each code of a finding means, and what to do about it."""

from __future__ import annotations

EXPLANATIONS: dict[str, str] = {
    "FX101": """The zip archive itself is damaged or built to deceive.
Its directory, the headers before the entries and the data don't agree: entries overlap, sizes differ, bytes belong to
nobody, there is more than one end. Different readers would see different files. Save the program again with torch.""",
    "FX102": """The bytes of an entry are not those that were written: the checksum (CRC-32) differs.
The file was damaged after it was saved, or changed by hand. Fetch it again; torch does not notice.""",
    "FX103": """A feature that .pt2 files don't use: encryption, another compression, another byte order or dialect.
Store the archive with entries stored or deflated.""",
    "FX104": """The file asks for more than the limits allow: entries, bytes, ratio of compression, depth.
If the file can be trusted, raise the limit: fastexport.load(..., limits={...}); fastexport.LIMITS has the
defaults.""",
    "FX105": """The system could not read or write the file; the message is the system's.""",
    "FX110": """Entries are not where a .pt2 file has them.
There is no top folder, or two layouts in one file, or something else than documents below models/.""",
    "FX111": """An entry that torch.export.load needs is missing.""",
    "FX112": """Two entries have one name, or names that differ only in capitals: readers take different ones.""",
    "FX113": """The name of an entry, or a path in a document, points outside the archive or holds odd characters.""",
    "FX114": """A marker says that the file is of another format or version.
The markers are archive_format, archive_version, .data/version, version and schema_version.""",
    "FX115": """An entry that no reader of .pt2 files asks for. It does no harm.""",
    "FX201": """A document is not JSON: syntax, encoding, a key that occurs twice, or text after its end.""",
    "FX202": """A document is nested deeper than any real program.""",
    "FX203": """A value is of another type than torch's schema says.""",
    "FX204": """A number does not fit its type: integers have 64 bits, floats are finite.""",
    "FX205": """A field that torch's schema demands is missing.""",
    "FX206": """A union must have exactly one key, and one that the schema knows.""",
    "FX207": """A number or name stands for nothing: an unknown dtype, layout, kind of argument or device.""",
    "FX208": """A field that the schema does not know. It is kept when the program is saved; torch ignores it.""",
    "FX301": """The graph is not well formed: a name is used before it is defined, defined twice, or has no value.""",
    "FX302": """A name is no Python identifier, or one that can't be used.
torch writes names of inputs into Python code and runs it, so a name that is code is an attack.""",
    "FX303": """A node calls something that no exported program calls.
Operators are spelled torch.ops.NAMESPACE.NAME.OVERLOAD; besides, a few functions on symbolic numbers are known.""",
    "FX304": """An operator that the table of torch 2.13 does not have: a custom one, or a misspelled name.
Nothing is known of its arguments and effects. torch opens the file only where the operator is registered.""",
    "FX305": """What a document says of a value can't be: a negative size, more sizes than strides, an overflow.""",
    "FX306": """A symbolic expression is not of the grammar, or could never be computed.
torch evaluates these texts as Python, so anything else in their place is an attack.""",
    "FX307": """A symbolic expression is nested deeper than any real one.""",
    "FX308": """A symbol occurs in a size, but no input and no node gives it a value.""",
    "FX309": """An operator writes to one of its arguments, and the dialect allows functional operators only.
run_decompositions() of torch makes a program functional.""",
    "FX310": """The arguments of a node don't fit the schema of its operator.""",
    "FX311": """The check of a dialect of one's own refuses an operator or the program.
The message is what its check_valid_op() or check_additional() said: see fastexport.Verifier.""",
    "FX400": """torch's own verifier refuses the program; the message is torch's.
Said where only torch can tell: its verifier is another than the one that fastexport knows, or a dialect has its
own.""",
    "FX401": """The signature does not agree with the graph or with the weights.
Number, order or names of inputs and outputs differ, a weight is missing, or something that is not there is updated.""",
    "FX402": """The text that tells how arguments are nested is not one that torch writes, or has other leaves.
torch imports modules that such a text names, so they are checked against a grammar.""",
    "FX403": """The metadata of a node (stack trace, module stack ...) is not of the form that torch writes.""",
    "FX404": """A guard is not of a known form. torch runs guards as Python code at the first call of the program;
fastexport only shows them.""",
    "FX501": """A weight or constant can't be right: its sizes or dtype don't fit its bytes, or the graph.""",
    "FX502": """A pickle asks for more than tensors. torch would run what it asks for; fastexport never does.""",
}
