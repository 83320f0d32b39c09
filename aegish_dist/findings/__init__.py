"""What a run says, decided once from estimates. Pure: it reads no rows and writes no words."""
