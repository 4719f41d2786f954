"""SASL: the exchanges of PLAIN, SCRAM and OAUTHBEARER, for servers and clients, and what they verify with."""
