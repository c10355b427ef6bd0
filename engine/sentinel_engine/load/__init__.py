"""Load tools for any OpenAI-compatible server: matrix, ladder, prose, smoke tests, provoke."""
