"""The settings of a broker, as fields of the classes on which `base/config` is built."""
