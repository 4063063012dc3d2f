"""What ptxas really made of a kernel: its machine instructions (SASS), and gates over them."""
