"""A tiny vision-language model that names colored shapes, and the script that trains it."""
