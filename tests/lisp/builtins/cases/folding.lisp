(reduce conj [] [1 2]) => [1 2]
(reduce conj #{} [1 1]) => #{1}
(reduce conj {} [[:a 1] {:b 2}]) => {:a 1 :b 2}
(reduce conj [] []) => []
(reduce merge {} [{:a 1} nil {:a 2}]) => {:a 2}
(reduce merge [{:a 1} {:b 2}]) => {:a 1 :b 2}
(reduce concat [[1] [2] #{3}]) => [1 2 3]
(reduce concat []) => []
(reduce * []) => 1
(reduce str []) => ""
(reduce conj []) => []
(reduce max []) => nil
(reduce [nil] []) !! reduce: not callable
(reduce {:a {:b [1]}} nil) => nil
(count (reduce conj [] (range 100000))) => 100000
(count (reduce (fn [v x] (conj v x)) [] (range 8000))) => 8000
(count (reduce (fn [m x] (assoc m x x)) {} (range 2500))) => 2500
(reduce conj 5 [1]) !! conj: expects a vector, map or set
