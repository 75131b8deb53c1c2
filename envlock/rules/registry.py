"""Every rule, in the order in which causes most likely explain a failure.

A rule is a small pure function in the file of its family. Its docstring is the manual page that
``envlock explain CODE`` prints: first line what it means, then why, then what to do.
"""
