"""What tests and scoring share: packed corpora and the evidence generator. Never imported by the analyser."""
