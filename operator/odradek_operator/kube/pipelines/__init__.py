"""The loops of Pipeline resources: they carry out what `odradek_operator.pipelines` decides."""
