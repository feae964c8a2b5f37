"""What a module's operators decide, what of it the inputs have shown, and inputs that show the rest."""
