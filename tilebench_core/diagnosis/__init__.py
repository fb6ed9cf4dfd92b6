"""Why one backend is slower than another: generated code without a GPU, hardware counters with one, and pages from both.

Observations are generated numbers; explanations are hypotheses and stand apart from them.
"""
