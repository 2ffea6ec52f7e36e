(parse-long "42") => 42
(parse-long "-7") => -7
(parse-long "+7") => 7
(parse-long " 7") => nil
(parse-long "4.0") => nil
(parse-long "٣") => nil
(parse-long 42) => nil
(parse-long nil) => nil
(parse-long "1" 2) !! parse-long
(parse-int "42") => 42
(parse-int "x") => nil
(parse-int) !! parse-int
(parse-double "3.5") => 3.5
(parse-double "1e3") => 1000.0
(parse-double ".5") => 0.5
(parse-double "1e999") => nil
(parse-double "nan") => nil
(parse-double 1) => nil
(parse-float "2") => 2.0
(parse-float "2,5") => nil
(parse-float nil) => nil
(parse-double) !! parse-double
(parse-boolean "true") => true
(parse-boolean "false") => false
(parse-boolean "yes") => nil
(parse-boolean 1) => nil
(int 3.9) => 3
(int -3.9) => -3
(int 5) => 5
(int "5") !! int: expects a number, got a string
(long 2.5) => 2
(long 7) => 7
(long nil) !! int: expects a number, got nil
(float 3) => 3.0
(float 0.5) => 0.5
(float "3") !! float: expects a number
(float (pow 10 400)) !! float: expects a number in the range of floats
(double 1) => 1.0
(double 2.5) => 2.5
(double :a) !! float: expects a number
(Integer/parseInt "42") => 42
(Long/parseLong "-7") => -7
(Integer/parseInt "4.5") !! Integer/parseInt: the string is no integer
(Integer/parseInt nil) !! Integer/parseInt: expects a string, got nil
(try (Long/parseLong "x") (catch Exception e -1)) => -1
(Double/parseDouble "4") => 4.0
(Double/parseDouble "x") !! Double/parseDouble: the string is no number
(try (Double/parseDouble "") (catch Exception e 0.5)) => 0.5
(Float/parseFloat "2.5") => 2.5
