"""What the model may do.

Reading order: `tool` (the seam), `catalog` (what there is), `files`, `shell`, `search`, `todo` (the
tools), `world` over `disk` and `process` (where they act), `cards` (what a person sees).
"""
