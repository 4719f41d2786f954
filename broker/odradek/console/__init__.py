"""The web console: shows a cluster in a browser, and changes topics and groups if that is enabled.

It is a client of the cluster and acts with the rights of the user who has logged in: `docs/design/0034-console.md`.
The package needs the extra `odradek[console]`.
"""
