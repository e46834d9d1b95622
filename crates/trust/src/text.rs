//! Foreign text made harmless for the terminal, Markdown, HTML and CSV.
