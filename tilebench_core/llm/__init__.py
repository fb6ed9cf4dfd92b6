"""The LLM track: kernels written by language models, judged by the same harness as every other kernel."""
