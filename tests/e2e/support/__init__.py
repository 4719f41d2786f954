"""What the end-to-end tests share: kubectl, helm, waiting, volumes, images, load, and what is kept of failures."""
