"""`pretty` beside this file is IPython's own."""
