"""Models larger than the machine: verified block by block, with what one block needs."""
