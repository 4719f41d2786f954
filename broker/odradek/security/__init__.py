"""Who a connection is and what it may do: TLS material and names, SASL exchanges, access rules, quotas.

The package knows no socket and no request (docs/design/0024).
"""
