"""Why a model diverges, and where: experiments, the first guilty node, a small reproduction."""
