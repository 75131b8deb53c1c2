"""Programs for those who maintain envlock; none of them is shipped."""
