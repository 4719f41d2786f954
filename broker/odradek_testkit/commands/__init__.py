"""The examples in the help of the commands, and how tests run them."""
