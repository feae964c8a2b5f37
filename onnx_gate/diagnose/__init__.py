"""Why a model diverges, and where: experiments, the first faulty node, a small reproduction."""
