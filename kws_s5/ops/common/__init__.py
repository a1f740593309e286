"""What the compiled operations share: code generation, machine code kept on disk, threads."""
