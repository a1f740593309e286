"""The room of the mathematics: HiPPO, discretisation, scans, the S5 layer's linear system. Knows no audio."""
